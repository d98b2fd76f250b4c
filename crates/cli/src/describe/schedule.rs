//! A schedule: what it makes, when, and what it made last.

use kube::Client;
use plimsoll_api::labels;
use serde_json::{Value, json};

use super::filters::{Spec, backup_settings, selection};
use super::page::Page;
use super::subject::{identity, time};
use crate::args::names::{Kind, Targets};
use crate::commands::get::age;
use crate::subjects::{self, Seen};

/// So many of its backups are named.
const SHOWN_BACKUPS: usize = 10;

/// Its backups, the latest first.
pub async fn backups(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Vec<Seen>> {
    let all = Targets { kind: Kind::Backup, names: Vec::new() };
    let mine = format!("{}={}", labels::SCHEDULE_NAME, labels::valid_name(name));
    let mut found = subjects::list(client, namespace, &all, Some(&mine)).await?;
    found.reverse();
    Ok(found)
}

/// As JSON.
pub fn facts(seen: &Seen, backups: &[Seen]) -> Value {
    json!({
        "kind": seen.kind.word(),
        "name": seen.name(),
        "namespace": seen.text("/metadata/namespace"),
        "labels": seen.map("/metadata/labels"),
        "annotations": seen.map("/metadata/annotations"),
        "phase": seen.phase(),
        "paused": is_paused(seen),
        "schedule": seen.text("/spec/schedule"),
        "template": seen.object.pointer("/spec/template"),
        "validationErrors": seen.texts("/status/validationErrors"),
        "lastBackup": seen.text("/status/lastBackup"),
        "lastSkipped": seen.text("/status/lastSkipped"),
        "backups": backups.iter().map(|backup| json!({ "name": backup.name(), "phase": backup.phase() })).collect::<Vec<_>>(),
    })
}

fn is_paused(seen: &Seen) -> bool {
    seen.object.pointer("/spec/paused").and_then(Value::as_bool).unwrap_or(false)
}

/// As text.
pub fn text(seen: &Seen, backups: &[Seen]) -> Vec<String> {
    let mut page = Page::default();
    page.section(|section| {
        let (labels, annotations) = (seen.map("/metadata/labels"), seen.map("/metadata/annotations"));
        identity(section, seen.name(), seen.text("/metadata/namespace").unwrap_or_default(), &labels, &annotations);
    });
    page.section(|section| {
        section.field("Phase", seen.phase());
        section.field("Paused", is_paused(seen));
        section.field("Schedule", seen.text("/spec/schedule").unwrap_or("<none>"));
        section.block("Validation errors", seen.texts("/status/validationErrors"));
    });
    page.section(|section| {
        let nothing = json!({});
        let mut template = Page::default();
        let spec = Spec(seen.object.pointer("/spec/template").unwrap_or(&nothing));
        selection(&mut template, &spec, "*");
        backup_settings(&mut template, &spec);
        section.block("Backup Template", template.lines());
    });
    page.section(|section| {
        let moment = |pointer: &str| seen.text(pointer).map_or_else(|| "<never>".to_owned(), time);
        section.field("Last Backup", moment("/status/lastBackup"));
        section.field("Last Skipped", moment("/status/lastSkipped"));
    });
    page.section(|section| {
        let line = |backup: &Seen| {
            format!("{}: {}, {} ago", backup.name(), backup.phase(), age(backup.text("/metadata/creationTimestamp")))
        };
        let more = backups.len().saturating_sub(SHOWN_BACKUPS);
        let more = (more > 0)
            .then(|| format!("... and {more} more: `plimsoll get backups -l velero.io/schedule-name={}`", seen.name()));
        section.block("Backups", backups.iter().take(SHOWN_BACKUPS).map(line).chain(more));
    });
    page.lines().into_iter().map(|line| line.trim_end().to_owned()).collect()
}
