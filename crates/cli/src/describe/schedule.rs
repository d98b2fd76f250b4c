//! A schedule: what it makes, when, and what it made last.

use kube::Client;
use plimsoll_api::labels;
use serde_json::{Value, json};

use super::filters::{Spec, backup_settings, selection};
use super::page::Page;
use super::subject::{identity_of, moment, with_identity};
use crate::args::names::{ResourceKind, Targets};
use crate::commands::get::age;
use crate::subjects::{self, Subject};

/// So many of its backups are named.
const MAX_BACKUPS: usize = 10;

/// Its backups, the latest first.
pub async fn backups(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Vec<Subject>> {
    let all = Targets { kind: ResourceKind::Backup, names: Vec::new() };
    let mine = format!("{}={}", labels::SCHEDULE_NAME, labels::valid_name(name));
    let mut found = subjects::list(client, namespace, &all, Some(&mine)).await?;
    found.reverse();
    Ok(found)
}

/// As JSON.
pub fn facts(subject: &Subject, backups: &[Subject]) -> Value {
    let facts = json!({
        "phase": subject.phase(),
        "paused": is_paused(subject),
        "schedule": subject.text("/spec/schedule"),
        "template": subject.object.pointer("/spec/template"),
        "validationErrors": subject.texts("/status/validationErrors"),
        "lastBackup": subject.text("/status/lastBackup"),
        "lastSkipped": subject.text("/status/lastSkipped"),
        "backups": backups.iter().map(|backup| json!({ "name": backup.name(), "phase": backup.phase() })).collect::<Vec<_>>(),
    });
    with_identity(subject, facts)
}

fn is_paused(subject: &Subject) -> bool {
    subject.object.pointer("/spec/paused").and_then(Value::as_bool).unwrap_or(false)
}

/// As text.
pub fn text(subject: &Subject, backups: &[Subject]) -> Vec<String> {
    let mut page = Page::default();
    page.section(|section| identity_of(section, subject));
    page.section(|section| {
        section.field("Phase", subject.phase());
        section.field("Paused", is_paused(subject));
        section.field("Schedule", subject.text("/spec/schedule").unwrap_or("<none>"));
        section.block("Validation errors", subject.texts("/status/validationErrors"));
    });
    page.section(|section| {
        let nothing = json!({});
        let mut template = Page::default();
        let spec = Spec(subject.object.pointer("/spec/template").unwrap_or(&nothing));
        selection(&mut template, &spec, "*");
        backup_settings(&mut template, &spec);
        section.block("Backup Template", template.lines());
    });
    page.section(|section| {
        section.field("Last Backup", moment(subject, "/status/lastBackup"));
        section.field("Last Skipped", moment(subject, "/status/lastSkipped"));
    });
    page.section(|section| {
        let line = |backup: &Subject| {
            format!("{}: {}, {} ago", backup.name(), backup.phase(), age(backup.text("/metadata/creationTimestamp")))
        };
        let more = backups.len().saturating_sub(MAX_BACKUPS);
        let more = (more > 0).then(|| {
            format!("... and {more} more: `plimsoll get backups -l velero.io/schedule-name={}`", subject.name())
        });
        section.block("Backups", backups.iter().take(MAX_BACKUPS).map(line).chain(more));
    });
    page.lines().into_iter().map(|line| line.trim_end().to_owned()).collect()
}
