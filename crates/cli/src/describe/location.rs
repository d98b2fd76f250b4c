//! A backup location: whether it can be used, and what it holds.

use kube::Client;
use plimsoll_api::labels;
use serde_json::{Value, json};

use super::page::Page;
use super::subject::{identity_of, moment, with_identity};
use crate::args::names::{ResourceKind, Targets};
use crate::output;
use crate::subjects::{self, Subject};

/// How many backups are known to be there.
pub async fn backups(client: &Client, namespace: &str, name: &str) -> anyhow::Result<usize> {
    let all = Targets { kind: ResourceKind::Backup, names: Vec::new() };
    let mine = format!("{}={}", labels::STORAGE_LOCATION, labels::valid_name(name));
    Ok(subjects::list(client, namespace, &all, Some(&mine)).await?.len())
}

/// As JSON.
pub fn facts(subject: &Subject, backups: usize) -> Value {
    let facts = json!({
        "phase": subject.text("/status/phase").unwrap_or("Unknown"),
        "message": subject.text("/status/message"),
        "spec": subject.object.get("spec"),
        "lastValidated": subject.text("/status/lastValidationTime"),
        "lastSynced": subject.text("/status/lastSyncedTime"),
        "backups": backups,
    });
    with_identity(subject, facts)
}

/// As text.
pub fn text(subject: &Subject, backups: usize) -> Vec<String> {
    let mut page = Page::default();
    page.section(|section| identity_of(section, subject));
    page.section(|section| {
        section.field("Phase", subject.text("/status/phase").unwrap_or("Unknown (not validated yet)"));
        section.some("Message", subject.text("/status/message"));
    });
    page.section(|section| {
        section.some("Provider", subject.text("/spec/provider"));
        section.some("Bucket", subject.text("/spec/objectStorage/bucket"));
        section.some("Prefix", subject.text("/spec/objectStorage/prefix"));
        let config = subject.map("/spec/config");
        section.field("Config", if config.is_empty() { "<none>".into() } else { output::pairs(&config, "\n") });
        section.field("Credential", credential(subject));
        section.field("Access Mode", subject.text("/spec/accessMode").unwrap_or("ReadWrite"));
        section.field("Default", subject.object.pointer("/spec/default").and_then(Value::as_bool).unwrap_or(false));
    });
    page.section(|section| {
        section.field("Last Validated", moment(subject, "/status/lastValidationTime"));
        section.field("Last Synced", moment(subject, "/status/lastSyncedTime"));
        section.field("Backups", backups);
    });
    page.lines()
}

/// The name of the Secret, never its content.
fn credential(subject: &Subject) -> String {
    match (subject.text("/spec/credential/name"), subject.text("/spec/credential/key")) {
        (Some(name), Some(key)) => format!("secret {name}, key {key}"),
        _ => "<default>".into(),
    }
}
