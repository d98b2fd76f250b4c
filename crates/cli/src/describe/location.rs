//! A backup location: whether it can be used, and what it holds.

use kube::Client;
use plimsoll_api::labels;
use serde_json::{Value, json};

use super::page::Page;
use super::subject::{identity, time};
use crate::args::names::{Kind, Targets};
use crate::output;
use crate::subjects::{self, Seen};

/// How many backups are known to be there.
pub async fn backups(client: &Client, namespace: &str, name: &str) -> anyhow::Result<usize> {
    let all = Targets { kind: Kind::Backup, names: Vec::new() };
    let mine = format!("{}={}", labels::STORAGE_LOCATION, labels::valid_name(name));
    Ok(subjects::list(client, namespace, &all, Some(&mine)).await?.len())
}

/// As JSON.
pub fn facts(seen: &Seen, backups: usize) -> Value {
    json!({
        "kind": seen.kind.word(),
        "name": seen.name(),
        "namespace": seen.text("/metadata/namespace"),
        "labels": seen.map("/metadata/labels"),
        "annotations": seen.map("/metadata/annotations"),
        "phase": seen.text("/status/phase").unwrap_or("Unknown"),
        "message": seen.text("/status/message"),
        "spec": seen.object.get("spec"),
        "lastValidated": seen.text("/status/lastValidationTime"),
        "lastSynced": seen.text("/status/lastSyncedTime"),
        "backups": backups,
    })
}

/// As text.
pub fn text(seen: &Seen, backups: usize) -> Vec<String> {
    let mut page = Page::default();
    page.section(|section| {
        let (labels, annotations) = (seen.map("/metadata/labels"), seen.map("/metadata/annotations"));
        identity(section, seen.name(), seen.text("/metadata/namespace").unwrap_or_default(), &labels, &annotations);
    });
    page.section(|section| {
        section.field("Phase", seen.text("/status/phase").unwrap_or("Unknown (nobody has looked at it yet)"));
        section.some("Message", seen.text("/status/message"));
    });
    page.section(|section| {
        section.some("Provider", seen.text("/spec/provider"));
        section.some("Bucket", seen.text("/spec/objectStorage/bucket"));
        section.some("Prefix", seen.text("/spec/objectStorage/prefix"));
        let config = seen.map("/spec/config");
        section.field("Config", if config.is_empty() { "<none>".into() } else { output::pairs(&config, "\n") });
        section.field("Credential", credential(seen));
        section.field("Access Mode", seen.text("/spec/accessMode").unwrap_or("ReadWrite"));
        section.field("Default", seen.object.pointer("/spec/default").and_then(Value::as_bool).unwrap_or(false));
    });
    page.section(|section| {
        let moment = |pointer: &str| seen.text(pointer).map_or_else(|| "<never>".to_owned(), time);
        section.field("Last Validated", moment("/status/lastValidationTime"));
        section.field("Last Synced", moment("/status/lastSyncedTime"));
        section.field("Backups", backups);
    });
    page.lines()
}

/// Where it is, never what it is.
fn credential(seen: &Seen) -> String {
    match (seen.text("/spec/credential/name"), seen.text("/spec/credential/key")) {
        (Some(name), Some(key)) => format!("secret {name}, key {key}"),
        _ => "<default>".into(),
    }
}
