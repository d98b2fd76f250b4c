//! A backup or restore as text: Velero's sections in Velero's order, and what Velero does not know.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use plimsoll_api::plimsoll::v1alpha1::ReasonCount;
use plimsoll_archive::results::Messages;
use plimsoll_progress::view::{self, Row};
use plimsoll_progress::{StallVerdict, Unit};
use serde_json::{Value, json};

use super::facts::Facts;
use super::filters::{Spec, backup_settings, hooks, selection};
use super::page::{Page, Section};
use crate::args::names::ResourceKind;
use crate::subjects::Subject;
use crate::transfer::{Transfer, groups};
use crate::{draw, output};

/// Without --details, so many messages of one place are printed.
const MAX_MESSAGES: usize = 10;

/// All lines.
pub fn text(facts: &Facts, details: bool) -> Vec<String> {
    let mut page = Page::default();
    page.section(|section| identity(section, &facts.name, &facts.namespace, &facts.labels, &facts.annotations));
    page.section(|section| phase(section, facts));
    page.section(|section| add_progress(section, facts));
    page.section(|section| section.block("Tasks", facts.tasks.iter().map(task_line)));
    page.section(|section| {
        messages(section, "Errors", facts.errors, facts.results.as_ref().map(|r| &r.errors), details);
    });
    page.section(|section| {
        messages(section, "Warnings", facts.warnings, facts.results.as_ref().map(|r| &r.warnings), details);
    });
    settings(&mut page, facts);
    page.section(|section| times(section, facts));
    page.section(|section| section.some("Expiration", facts.expires.as_deref().map(time)));
    page.section(|section| counters(section, facts));
    page.section(|section| section.block("Reasons", reasons(facts)));
    page.section(|section| section.block("Stages", facts.stages.iter().map(stage_line)));
    page.section(|section| namespaces(section, facts));
    page.section(|section| items(section, facts));
    page.section(|section| volumes(section, facts, details));
    page.section(|section| {
        facts.item_operations.iter().for_each(|operations| operations.print(section, facts.kind));
    });
    page.section(|section| transfers(section, facts, details));
    page.section(|section| plugin_transfer(section, facts, details));
    page.section(|section| {
        section.field("HooksAttempted", facts.hooks_attempted);
        section.field("HooksFailed", facts.hooks_failed);
    });
    page.section(|section| facts.notes.iter().for_each(|note| section.line_at(0, format!("Note: {note}"))));
    page.lines()
}

/// Name, namespace, labels, annotations.
fn identity(
    section: &mut Section,
    name: &str,
    namespace: &str,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) {
    let text = |map: &BTreeMap<String, String>| if map.is_empty() { "<none>".into() } else { output::pairs(map, "\n") };
    section.field("Name", name);
    section.field("Namespace", namespace);
    section.field("Labels", text(labels));
    section.field("Annotations", text(annotations));
}

/// [`identity`] of an object.
pub fn identity_of(section: &mut Section, subject: &Subject) {
    let namespace = subject.text("/metadata/namespace").unwrap_or_default();
    identity(
        section,
        subject.name(),
        namespace,
        &subject.map("/metadata/labels"),
        &subject.map("/metadata/annotations"),
    );
}

/// [`identity_of`] as JSON, followed by `facts`.
pub fn with_identity(subject: &Subject, facts: Value) -> Value {
    let mut all = json!({
        "kind": subject.kind.word(),
        "name": subject.name(),
        "namespace": subject.text("/metadata/namespace"),
        "labels": subject.map("/metadata/labels"),
        "annotations": subject.map("/metadata/annotations"),
    });
    if let (Value::Object(all), Value::Object(facts)) = (&mut all, facts) {
        all.extend(facts);
    }
    all
}

/// A time of an object, or that it never happened.
pub fn moment(subject: &Subject, pointer: &str) -> String {
    subject.text(pointer).map_or_else(|| "<never>".to_owned(), time)
}

fn phase(section: &mut Section, facts: &Facts) {
    section.field("Phase", &facts.phase);
    section.some("Queue position", facts.queue_position);
    section.some("Failure reason", facts.failure_reason.as_deref());
    if let Some(attempt) = facts.attempt.filter(|attempt| *attempt > 1) {
        section.field("Attempts", format!("{attempt} (resumed after a change of leader)"));
    }
    section.block("Validation errors", facts.validation_errors.iter().cloned());
}

fn add_progress(section: &mut Section, facts: &Facts) {
    let progress = &facts.progress;
    section.some("Progress", progress.percent.as_ref().map(|percent| format!("{percent} %")));
    section.some("Rate", progress.rate.map(|rate| view::rate_text(rate, progress.unit.unwrap_or(Unit::Items))));
    if let Some([low, high]) = progress.seconds_left.map(|left| left.map(|seconds| draw::duration(seconds_of(seconds))))
    {
        section.field("Time left", if low == high { low } else { format!("{low} to {high}") });
    }
    if let Some(from) = &progress.from {
        let estimate = progress.estimate.as_ref().map(|estimate| format!(": {estimate}")).unwrap_or_default();
        section.field("Estimated from", format!("{from}{estimate}"));
    }
    section.some("End waits for", progress.waits_for.as_deref());
    let is_quiet = progress.verdict.as_deref() == Some(StallVerdict::Quiet.name());
    let quiet = if is_quiet { " (quiet)" } else { "" };
    section.some("Doing", progress.doing.as_ref().map(|doing| format!("{doing}{quiet}")));
    section.some("Last advance", progress.last_advance.as_deref().map(time));
    if let Some(stalled) = &progress.stalled {
        let field = |name: &str| stalled.get(name).and_then(Value::as_str).unwrap_or("?");
        let label = progress.verdict.as_deref().unwrap_or("Stalled").to_uppercase();
        section.field(&label, format!("{} since {}: {}", field("task"), field("since"), field("message")));
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn seconds_of(seconds: u64) -> f64 {
    seconds as f64
}

/// Grouped by where they belong, as Velero does it.
fn messages(section: &mut Section, label: &str, count: u64, known: Option<&Messages>, details: bool) {
    let Some(known) = known.filter(|known| !known.is_empty()) else { return section.field(label, count) };
    section.line_at(0, format!("{label}: {count}"));
    group(section, 1, "Server", &known.velero, details);
    group(section, 1, "Cluster", &known.cluster, details);
    if !known.namespaces.is_empty() {
        section.line_at(1, "Namespaces:");
        known.namespaces.iter().for_each(|(name, texts)| group(section, 2, name, texts, details));
    }
}

fn group(section: &mut Section, depth: usize, name: &str, texts: &[String], details: bool) {
    if texts.is_empty() {
        return;
    }
    section.line_at(depth, format!("{name}: {}", texts.len()));
    let shown = if details { texts.len() } else { MAX_MESSAGES };
    texts.iter().take(shown).for_each(|text| section.line_at(depth + 1, text.clone()));
    if texts.len() > shown {
        section.line_at(depth + 1, format!("... and {} more (--details shows all)", texts.len() - shown));
    }
}

fn settings(page: &mut Page, facts: &Facts) {
    let spec = Spec(&facts.spec);
    if facts.kind == ResourceKind::Backup {
        selection(page, &spec, "*");
        backup_settings(page, &spec);
        page.section(|section| section.some("Backup Format Version", facts.format_version.as_deref()));
        return;
    }
    page.section(|section| {
        section.field("Backup", spec.text("backupName", "<none>"));
        section.some("Schedule", facts.spec.get("scheduleName").and_then(Value::as_str));
    });
    selection(page, &spec, "all namespaces found in the backup");
    page.section(|section| {
        let mapping = facts.spec.get("namespaceMapping").and_then(Value::as_object).into_iter().flatten();
        let mapping: Vec<_> = mapping.map(|(old, new)| format!("{old}={}", new.as_str().unwrap_or_default())).collect();
        section.field("Namespace mappings", if mapping.is_empty() { "<none>".into() } else { mapping.join(", ") });
    });
    page.section(|section| {
        section.field("Restore PVs", spec.choice("restorePVs"));
        section.field("Existing Resource Policy", spec.text("existingResourcePolicy", "<none>"));
        section.field("ItemOperationTimeout", spec.text("itemOperationTimeout", "<default>"));
        section.field("Preserve Service NodePorts", spec.choice("preserveNodePorts"));
        section.some("Resource modifier", spec.named("resourceModifier"));
    });
    page.section(|section| hooks(section, &spec));
}

fn times(section: &mut Section, facts: &Facts) {
    let text = |moment: &Option<String>| moment.as_deref().map_or_else(|| "<n/a>".to_owned(), time);
    section.field("Started", text(&facts.started));
    section.field("Completed", text(&facts.completed));
}

fn counters(section: &mut Section, facts: &Facts) {
    let progress = &facts.progress;
    let Some(total) = progress.total_items else { return };
    let verb = facts.kind.done_word();
    if facts.is_running() {
        section.field(&format!("Estimated total items to be {verb}"), total);
        section.field(&format!("Items {verb} so far"), progress.done);
    } else {
        section.field(&format!("Total items to be {verb}"), total);
        section.field(&format!("Items {verb}"), progress.done);
    }
    section.field("Items skipped", progress.skipped);
    section.field("Items failed", progress.failed);
    if let (Some(excluded), Some(all)) = (progress.excluded, progress.backup_items) {
        section.field("Excluded by filters", format!("{excluded} (the backup holds {all})"));
    }
}

/// Most frequent first, as they come.
fn reasons(facts: &Facts) -> impl Iterator<Item = String> {
    let count = |reason: &ReasonCount| reason.count.unwrap_or(0);
    let width = facts.reasons.iter().map(|reason| count(reason).to_string().len()).max().unwrap_or(0);
    facts.reasons.iter().map(move |reason| {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        format!("{:>width$} {}: {}", count(reason), text(&reason.outcome), text(&reason.reason))
    })
}

fn namespaces(section: &mut Section, facts: &Facts) {
    if facts.namespaces.is_empty() {
        return;
    }
    section.line_at(0, "Results by namespace:");
    for (name, counts) in &facts.namespaces {
        let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        section.field_at(1, if name.is_empty() { "<cluster-scoped>" } else { name }, counts.join(", "));
    }
}

fn items(section: &mut Section, facts: &Facts) {
    let Some(items) = &facts.items else { return };
    section.line_at(0, "Resource List:");
    if items.is_empty() {
        section.line_at(1, "<none>");
    }
    for (kind, names) in items {
        section.line_at(1, format!("{kind}:"));
        for name in names {
            section.line_at(2, format!("- {name}"));
        }
    }
}

/// Names only: the transfers themselves show their progress.
fn volumes(section: &mut Section, facts: &Facts, details: bool) {
    let label = if facts.kind == ResourceKind::Backup { "Backup Volumes" } else { "Restore Volumes" };
    match &facts.volumes {
        Some(volumes) if !volumes.is_empty() => section.block(label, volumes.iter().map(volume_line)),
        _ if details => section.field(label, "<none included>"),
        _ => {}
    }
}

/// By mover and phase, as Velero groups them. What runs is always shown; what does not, only with --details.
fn transfers(section: &mut Section, facts: &Facts, details: bool) {
    let mut movers: Vec<_> =
        facts.transfers.iter().map(|one| (one.is_data_movement(), one.uploader.as_str())).collect();
    movers.sort_unstable();
    movers.dedup();
    for (moved, mover) in movers {
        let of_it = |one: &&Transfer| (one.is_data_movement(), one.uploader.as_str()) == (moved, mover);
        let members: Vec<_> = facts.transfers.iter().filter(of_it).cloned().collect();
        let heading = match facts.kind {
            _ if moved => format!("Snapshot Data Movement - {mover}"),
            ResourceKind::Backup => format!("Pod Volume Backups - {mover}"),
            _ => format!("{mover} Restores"),
        };
        section.line_at(0, if details { format!("{heading}:") } else { format!("{heading} (--details shows all):") });
        for group in groups(&members) {
            if details || group.running {
                section.line_at(1, format!("{}:", group.title));
                group.lines.into_iter().for_each(|line| section.line_at(2, line));
            } else {
                section.line_at(1, format!("{}: {}", group.title, group.count));
            }
        }
    }
}

/// Each with its progress, which is shown nowhere else.
fn plugin_transfer(section: &mut Section, facts: &Facts, details: bool) {
    if facts.plugin_transfer.is_empty() {
        return;
    }
    let heading = if facts.kind == ResourceKind::Backup { "Plugin Snapshots" } else { "Volumes from Plugin Snapshots" };
    section.line_at(0, format!("{heading}:"));
    for work in &facts.plugin_transfer {
        section.line_at(1, work.line());
        if details {
            work.details().into_iter().for_each(|line| section.line_at(2, line));
        }
    }
}

fn volume_line(volume: &Value) -> String {
    let text = |name: &str| volume.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let claim = text("pvcName").map(|claim| format!("{}/{claim}", text("pvcNamespace").unwrap_or_default()));
    let claim = claim.or_else(|| text("pvName").map(str::to_owned)).unwrap_or_else(|| "<unnamed>".into());
    let method = text("backupMethod").or_else(|| text("restoreMethod")).unwrap_or("unknown method");
    let parts: Vec<_> = std::iter::once(method.to_owned()).chain(snapshot_parts(volume)).collect();
    format!("{claim} ({})", parts.join(", "))
}

/// Size and readiness of a snapshot.
fn snapshot_parts(volume: &Value) -> Vec<String> {
    let kinds = ["csiSnapshotInfo", "snapshotDataMovementInfo", "nativeSnapshotInfo"];
    let Some(info) = kinds.into_iter().find_map(|kind| volume.get(kind).filter(|info| info.is_object())) else {
        return Vec::new();
    };
    let size = info.get("size").and_then(Value::as_u64).filter(|size| *size > 0).map(view::size_text);
    let ready = info.get("ReadyToUse").and_then(Value::as_bool);
    let ready = ready.map(|ready| if ready { "ready to use" } else { "not ready to use" }.to_owned());
    let phase = info.get("Phase").and_then(Value::as_str).filter(|phase| !phase.is_empty()).map(str::to_owned);
    [size, ready, phase].into_iter().flatten().collect()
}

fn task_line(row: &Row) -> String {
    format!("{}{}", "  ".repeat(row.depth), draw::plain_row(row))
}

fn stage_line(stage: &Value) -> String {
    let text = |name: &str| stage.get(name).and_then(Value::as_str).unwrap_or_default();
    let milliseconds = stage.get("milliseconds").and_then(Value::as_u64).unwrap_or(0);
    format!("{}: {} in {milliseconds} ms", text("name"), text("state"))
}

/// `2026-11-16 05:09:34 UTC`.
pub fn time(text: &str) -> String {
    let Ok(time) = text.parse::<Timestamp>() else { return text.to_owned() };
    time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_shows_how_large_its_snapshot_is_and_whether_it_is_ready() {
        let line = |method: &str, field: &str, info: Value| {
            volume_line(&json!({ "pvcName": "data", "pvcNamespace": "n", "backupMethod": method, field: info }))
        };
        let ready = |ready: bool| json!({ "snapshotHandle": "h", "size": 2048, "ReadyToUse": ready });
        assert_eq!(line("CSISnapshot", "csiSnapshotInfo", ready(true)), "n/data (CSISnapshot, 2.0 KiB, ready to use)");
        assert_eq!(
            line("CSISnapshot", "csiSnapshotInfo", ready(false)),
            "n/data (CSISnapshot, 2.0 KiB, not ready to use)"
        );
        let moved = json!({ "size": 1024, "Phase": "Completed" });
        assert_eq!(line("CSISnapshot", "snapshotDataMovementInfo", moved), "n/data (CSISnapshot, 1.0 KiB, Completed)");
        let native = json!({ "snapshotHandle": "h", "Phase": "Failed" });
        assert_eq!(line("NativeSnapshot", "nativeSnapshotInfo", native), "n/data (NativeSnapshot, Failed)");
        assert_eq!(line("PodVolumeBackup", "pvbInfo", json!({})), "n/data (PodVolumeBackup)");
    }
}
