//! `plimsoll restore create --dry-run`: what would become of every item of a backup.

use std::collections::BTreeSet;
use std::io::{Seek, Write};
use std::time::Duration;

use anyhow::Context;
use kube::Client;
use plimsoll_api::velero::v1::{DownloadTargetKind, Restore};
use plimsoll_engine::cluster::Cluster;
use plimsoll_engine::restore::preview::{Preview, PreviewItem, PreviewRequest, PreviewVerdict, preview};
use plimsoll_progress::{Clock, Operation};
use plimsoll_select::resource_modifiers::ResourceModifiers;
use serde_json::{Value, json};

use super::plan::{config_map, policies};
use crate::args::Global;
use crate::args::names::{Reference, ResourceKind};
use crate::args::options::{ObjectFormat, TlsOptions};
use crate::exit::Outcome;
use crate::progress_display::ProgressDisplay;
use crate::remote::Remote;
use crate::{connect, output};

/// How long the server may take to sign a URL.
const URL_TIMEOUT: Duration = Duration::from_mins(1);
/// The number of differences that are printed.
const MAX_ENTRIES: usize = 20;

/// Shows what a restore would do, with the user's own rights. Downloads the backup; changes nothing.
pub async fn run(global: &Global, restore: Restore, format: Option<ObjectFormat>) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let operation = Operation::new("dry run", Clock::system());
    let mut items = Vec::new();
    let keep_all = format.is_some();
    let work = compute_preview(&client, global, restore, &operation, |item| {
        if keep_all || !matches!(item.verdict, PreviewVerdict::Create | PreviewVerdict::Equal) {
            items.push(item);
        }
    });
    let found = ProgressDisplay::on_terminal_only().show_while(&operation, Box::pin(work)).await?;
    match format {
        Some(format) => output::object(&facts(&found, &items)?, format)?,
        None => text(&found, &items).into_iter().for_each(output::line),
    }
    Ok(Outcome::Success)
}

async fn compute_preview(
    client: &Client,
    global: &Global,
    restore: Restore,
    operation: &Operation,
    on_item: impl FnMut(PreviewItem),
) -> anyhow::Result<Preview> {
    let namespace = &global.namespace;
    let policies = policies(client, namespace, restore.spec.resource_policy.as_ref()).await?;
    let modifiers = match config_map(client, namespace, restore.spec.resource_modifier.as_ref()).await? {
        Some((name, data)) => {
            Some(ResourceModifiers::from_config_map(&data).with_context(|| format!("ConfigMap {name}"))?)
        }
        None => None,
    };
    let scratch = tempfile::tempdir().context("cannot create a temporary directory")?;
    let mut archive = tempfile::tempfile_in(scratch.path()).context("cannot write a temporary file")?;
    let backup = Reference { kind: ResourceKind::Backup, name: restore.spec.backup_name.clone().unwrap_or_default() };
    let remote = Remote::of(client, namespace, &backup, &TlsOptions::default(), URL_TIMEOUT).await?;
    let downloading = operation.root().child("downloading");
    remote.fetch(&DownloadTargetKind::BackupContents, &downloading, |piece| archive.write_all(piece)).await?;
    downloading.finish();
    archive.rewind()?;
    let request = PreviewRequest {
        cluster: Cluster::new(client.clone()),
        restore,
        policies,
        modifiers,
        volumes: plimsoll_engine::restore::BackupVolumes::default(),
    };
    let looking = operation.root().child("comparing");
    preview(request, archive, scratch.path(), &looking, on_item).await.context("cannot preview the restore")
}

fn facts(found: &Preview, items: &[PreviewItem]) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(found)?;
    value["items"] = json!(items);
    Ok(value)
}

fn text(found: &Preview, items: &[PreviewItem]) -> Vec<String> {
    let count = |verdict: &str| found.counts.get(verdict).copied().unwrap_or(0);
    let mut lines = vec![
        format!("Items to be restored:   {}", found.total),
        format!("  would be created:     {}", count("create")),
        format!("  exist, unchanged:     {}", count("equal")),
        format!("  exist, different:     {}", count("differ")),
        format!("  would be skipped:     {}", count("skip")),
        format!("  would fail:           {}", count("fail")),
        format!("Excluded by filters:    {}", found.excluded),
    ];
    let sets = [
        ("Namespaces that would be created", &found.missing_namespaces),
        ("Kinds that this cluster does not serve; their items would fail", &found.missing_kinds),
        ("Storage classes that do not exist; volumes would stay pending", &found.missing_storage_classes),
        ("Additional items, needed by others", &found.additional),
        ("Additional items that are not in the backup", &found.missing_additional),
        ("Permissions that you lack", &found.not_allowed),
    ];
    for (heading, names) in sets {
        block(&mut lines, heading, names);
    }
    block(&mut lines, "Corrupt in the backup", &found.damaged.iter().cloned().collect());
    let differing = items.iter().filter_map(difference);
    blocks(&mut lines, "Different", differing.collect());
    let failing = items.iter().filter_map(|item| match &item.verdict {
        PreviewVerdict::Fail { reason, message } => Some(vec![format!("{}: {reason}: {message}", path(item))]),
        PreviewVerdict::Skip { reason } => Some(vec![format!("{}: skipped: {reason}", path(item))]),
        _ => None,
    });
    blocks(&mut lines, "Skipped and failed", failing.collect());
    lines
}

fn path(item: &PreviewItem) -> String {
    match &item.namespace {
        Some(namespace) => format!("{} {namespace}/{}", item.kind, item.name),
        None => format!("{} {}", item.kind, item.name),
    }
}

fn difference(item: &PreviewItem) -> Option<Vec<String>> {
    let PreviewVerdict::Differ { difference, updated } = &item.verdict else { return None };
    let fate = if *updated { "would be updated" } else { "would be left unchanged" };
    let mut lines = vec![format!("{} ({fate})", path(item))];
    let mut changes = Vec::new();
    changed(difference, "", &mut changes);
    lines.extend(changes.into_iter().map(|change| format!("  {change}")));
    Some(lines)
}

/// A merge patch, one line for each value: `~ data.k: "new"`, `- data.old`.
fn changed(patch: &Value, at: &str, lines: &mut Vec<String>) {
    match patch {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let below = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                changed(value, &below, lines);
            }
        }
        Value::Null => lines.push(format!("- {at}")),
        value => lines.push(format!("~ {at}: {}", shortened(&value.to_string()))),
    }
}

fn shortened(text: &str) -> String {
    const MAX_LENGTH: usize = 200;
    if text.len() <= MAX_LENGTH {
        text.to_owned()
    } else {
        format!("{}…", &text[..text.floor_char_boundary(MAX_LENGTH)])
    }
}

fn block(lines: &mut Vec<String>, heading: &str, names: &BTreeSet<String>) {
    blocks(lines, heading, names.iter().map(|name| vec![name.clone()]).collect());
}

fn blocks(lines: &mut Vec<String>, heading: &str, entries: Vec<Vec<String>>) {
    if entries.is_empty() {
        return;
    }
    lines.push(format!("\n{heading}:"));
    let more = entries.len().saturating_sub(MAX_ENTRIES);
    lines.extend(entries.into_iter().take(MAX_ENTRIES).flatten().map(|line| format!("  {line}")));
    if more > 0 {
        lines.push(format!("  ... and {more} more (-o json has all)"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_one_line_for_each_value() {
        let mut lines = Vec::new();
        changed(&json!({ "data": { "a": "new", "gone": null }, "spec": { "list": [1] } }), "", &mut lines);
        assert_eq!(lines, ["~ data.a: \"new\"", "- data.gone", "~ spec.list: [1]"]);
    }
}
