//! `plimsoll describe`: one description, two renderings.

use plimsoll_progress::view::Row;
use serde::Serialize;
use serde_json::Value;

use crate::args::{Describe, Global, Kind};
use crate::exit::Outcome;
use crate::subjects::{self, Seen};
use crate::{connect, draw, output, wait};

/// Tells everything about one backup or restore.
pub async fn run(global: &Global, options: Describe) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let seen = subjects::read(&client, &global.namespace, &options.reference).await?;
    let description = describe(&seen);
    match options.output {
        Some(format) => output::object(&description, format)?,
        None => text(&description).into_iter().for_each(output::line),
    }
    Ok(Outcome::Success)
}

/// What can be told.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Description {
    kind: &'static str,
    name: String,
    namespace: String,
    phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    validation_errors: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backup: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_location: Option<String>,
    spec: Value,
    progress: Progress,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    errors: u64,
    warnings: u64,
    /// Where the live numbers come from: `operation` (ours) or `subject` (its own fields only).
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<i64>,
    tasks: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stages: Vec<Value>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_items: Option<u64>,
    done: u64,
    skipped: u64,
    failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_left: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_advance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    doing: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stalled: Option<Value>,
}

fn describe(seen: &Seen) -> Description {
    let text = |pointer: &str| seen.text(pointer).map(str::to_owned);
    let list = |pointer: &str| seen.object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let running = seen.outcome().is_none();
    let operation = seen.operation.as_ref().and_then(|operation| operation.status.clone());
    Description {
        kind: seen.kind.word(),
        name: seen.name().to_owned(),
        namespace: text("/metadata/namespace").unwrap_or_default(),
        phase: seen.phase().to_owned(),
        failure_reason: text("/status/failureReason"),
        validation_errors: list("/status/validationErrors").iter().filter_map(|v| v.as_str().map(Into::into)).collect(),
        backup: text("/spec/backupName"),
        storage_location: text("/spec/storageLocation"),
        spec: seen.object.get("spec").cloned().unwrap_or_default(),
        progress: progress(seen, running),
        started: text("/status/startTimestamp"),
        completed: text("/status/completionTimestamp"),
        expires: text("/status/expiration"),
        errors: seen.number("/status/errors"),
        warnings: seen.number("/status/warnings"),
        source: if operation.is_some() { "operation" } else { "subject" },
        attempt: operation.as_ref().and_then(|status| status.attempt),
        tasks: if running && seen.tree().is_some() { wait::rows(seen) } else { Vec::new() },
        stages: operation
            .map(|status| status.stages.iter().filter_map(|stage| serde_json::to_value(stage).ok()).collect())
            .unwrap_or_default(),
    }
}

fn progress(seen: &Seen, running: bool) -> Progress {
    let items = seen.items();
    let live = |pointer: &str| seen.object.pointer(pointer).filter(|value| running && !value.is_null()).cloned();
    Progress {
        percent: seen.text("/status/plimsoll/percent").map(str::to_owned),
        total_items: items.total.value(),
        done: items.done,
        skipped: items.skipped,
        failed: items.failed,
        rate: live("/status/plimsoll/rate").and_then(|rate| rate.as_u64()),
        seconds_left: live("/status/plimsoll/secondsLeft"),
        last_advance: live("/status/plimsoll/lastAdvance").and_then(|time| time.as_str().map(Into::into)),
        doing: live("/status/plimsoll/task").and_then(|task| task.as_str().map(Into::into)),
        stalled: live("/status/plimsoll/stalled"),
    }
}

fn text(description: &Description) -> Vec<String> {
    let mut lines = Lines::default();
    lines.add("Name", &description.name);
    lines.add("Namespace", &description.namespace);
    lines.add("Phase", &description.phase);
    lines.some("Failure reason", description.failure_reason.as_deref());
    lines.block("Validation errors", &description.validation_errors);
    lines.some("Backup", description.backup.as_deref());
    lines.some("Storage location", description.storage_location.as_deref());
    filters(&mut lines, &description.spec);
    lines.some("Started", description.started.as_deref());
    lines.some("Completed", description.completed.as_deref());
    lines.some("Expires", description.expires.as_deref());
    counters(&mut lines, description);
    live(&mut lines, &description.progress);
    lines.add("Errors", &description.errors.to_string());
    lines.add("Warnings", &description.warnings.to_string());
    if let Some(attempt) = description.attempt.filter(|attempt| *attempt > 1) {
        lines.add("Attempts", &format!("{attempt} (taken over from servers that went away)"));
    }
    lines.block("Tasks", &description.tasks.iter().map(task_line).collect::<Vec<_>>());
    lines.block("Stages", &description.stages.iter().map(stage_line).collect::<Vec<_>>());
    lines.0
}

fn counters(lines: &mut Lines, description: &Description) {
    let (backup, progress) = (description.kind == Kind::Backup.word(), &description.progress);
    let Some(total) = progress.total_items else { return };
    let running = ["InProgress", "New", "Queued"].contains(&description.phase.as_str());
    let verb = if backup { "backed up" } else { "restored" };
    let (of_total, of_done) =
        if running { ("Estimated total items to be", "so far") } else { ("Total items to be", "") };
    lines.add(&format!("{of_total} {verb}"), &total.to_string());
    lines.add(format!("Items {verb} {of_done}").trim_end(), &progress.done.to_string());
    lines.add("Items skipped", &progress.skipped.to_string());
    lines.add("Items failed", &progress.failed.to_string());
}

fn live(lines: &mut Lines, progress: &Progress) {
    lines.some("Progress", progress.percent.as_ref().map(|percent| format!("{percent}%")).as_deref());
    lines.some("Rate", progress.rate.map(|rate| format!("{rate}/s")).as_deref());
    if let Some([low, high]) = progress.seconds_left.as_ref().and_then(Value::as_array).map(Vec::as_slice) {
        let text = |seconds: &Value| draw::duration(seconds.as_f64().unwrap_or_default());
        lines.add("Time left", &format!("{} to {}", text(low), text(high)));
    }
    lines.some("Doing", progress.doing.as_deref());
    if let Some(stalled) = &progress.stalled {
        let field = |name: &str| stalled.get(name).and_then(Value::as_str).unwrap_or("?");
        lines.add("STALLED", &format!("{} since {}: {}", field("task"), field("since"), field("message")));
    }
}

fn filters(lines: &mut Lines, spec: &Value) {
    let list = |name: &str| {
        let items = spec.get(name).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    for (label, field) in [
        ("Included namespaces", "includedNamespaces"),
        ("Excluded namespaces", "excludedNamespaces"),
        ("Included resources", "includedResources"),
        ("Excluded resources", "excludedResources"),
    ] {
        lines.some(label, Some(list(field)).filter(|text| !text.is_empty()).as_deref());
    }
    let selector = spec.get("labelSelector").filter(|selector| !selector.is_null());
    lines.some("Label selector", selector.map(ToString::to_string).as_deref());
}

fn task_line(row: &Row) -> String {
    format!("{}{}", "  ".repeat(row.depth), draw::plain(row))
}

fn stage_line(stage: &Value) -> String {
    let text = |name: &str| stage.get(name).and_then(Value::as_str).unwrap_or_default();
    let milliseconds = stage.get("milliseconds").and_then(Value::as_u64).unwrap_or(0);
    format!("{}: {} in {milliseconds} ms", text("name"), text("state"))
}

/// `Label:  value`, aligned.
#[derive(Default)]
struct Lines(Vec<String>);

impl Lines {
    fn add(&mut self, label: &str, value: &str) {
        self.0.push(format!("{:40}{value}", format!("{label}:")));
    }

    fn some(&mut self, label: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(label, value);
        }
    }

    fn block(&mut self, label: &str, values: &[String]) {
        if !values.is_empty() {
            self.0.push(format!("{label}:"));
            self.0.extend(values.iter().map(|value| format!("  {value}")));
        }
    }
}
