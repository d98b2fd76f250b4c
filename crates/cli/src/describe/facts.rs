//! The facts about a backup or restore.

use std::collections::BTreeMap;

use plimsoll_api::plimsoll::v1alpha1::ReasonCount;
use plimsoll_archive::results::Results;
use plimsoll_progress::Unit;
use plimsoll_progress::view::Row;
use serde::Serialize;
use serde_json::Value;

use super::files::Files;
use super::item_operations::ItemOperations;
use crate::args::names::ResourceKind;
use crate::plugin_transfer::PluginTransfer;
use crate::subjects::Subject;
use crate::transfer::Transfer;
use crate::wait;

/// The facts, as `-o json` prints them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    #[serde(serialize_with = "word")]
    pub kind: ResourceKind,
    pub name: String,
    pub namespace: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    pub phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validation_errors: Vec<String>,
    pub spec: Value,
    pub progress: Progress,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    pub errors: u64,
    pub warnings: u64,
    /// The errors and warnings themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<Results>,
    /// Why items were skipped or failed, most frequent first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<ReasonCount>,
    /// Outcomes of the items by namespace; the empty name is for cluster-scoped items.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub namespaces: BTreeMap<String, BTreeMap<String, u64>>,
    /// Items by kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<BTreeMap<String, Vec<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item_operations: Option<ItemOperations>,
    /// Volume data on its way, or there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<Transfer>,
    /// Snapshots of plugins, or volumes made from them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plugin_transfer: Vec<PluginTransfer>,
    pub hooks_attempted: u64,
    pub hooks_failed: u64,
    /// The source of the live numbers: `operation`, or `subject` for its own fields only.
    pub source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// The tasks, while it runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Row>,
    /// The stages, once it has ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Value>,
    /// What could not be read, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_items: Option<u64>,
    pub done: u64,
    pub skipped: u64,
    pub failed: u64,
    /// Items of the backup that this restore's filters leave out, and how many the backup holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_items: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<[u64; 2]>,
    /// Where the time left comes from: `pace`, `history` or `plan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What it is computed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<String>,
    /// The task that the end waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_advance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// `Stalled`, `Spinning`, `Crawling` or `Quiet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled: Option<Value>,
}

impl Facts {
    /// Whether it has not ended.
    pub fn is_running(&self) -> bool {
        !["Completed", "PartiallyFailed", "Failed", "FailedValidation"].contains(&self.phase.as_str())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn word<S: serde::Serializer>(kind: &ResourceKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.word())
}

/// The facts about one of them.
pub fn facts(subject: &Subject, files: Files) -> Facts {
    let text = |pointer: &str| subject.text(pointer).map(str::to_owned);
    let operation = subject.operation.as_ref().and_then(|operation| operation.status.clone());
    let running = subject.outcome().is_none();
    Facts {
        kind: subject.kind,
        name: subject.name().to_owned(),
        namespace: text("/metadata/namespace").unwrap_or_default(),
        labels: subject.map("/metadata/labels"),
        annotations: subject.map("/metadata/annotations"),
        phase: subject.phase().to_owned(),
        queue_position: subject.object.pointer("/status/queuePosition").and_then(Value::as_u64),
        failure_reason: text("/status/failureReason"),
        validation_errors: subject.texts("/status/validationErrors"),
        spec: subject.object.get("spec").cloned().unwrap_or_default(),
        progress: progress(subject, running, files.backup_items),
        format_version: text("/status/formatVersion"),
        started: text("/status/startTimestamp"),
        completed: text("/status/completionTimestamp"),
        expires: text("/status/expiration"),
        errors: subject.number("/status/errors"),
        warnings: subject.number("/status/warnings"),
        results: files.results,
        reasons: operation.as_ref().map(|status| status.reasons.clone()).unwrap_or_default(),
        namespaces: files.items.as_ref().map(by_namespace).unwrap_or_default(),
        items: files.items,
        volumes: files.volumes,
        item_operations: ItemOperations::of(subject, files.item_operations),
        transfers: files.transfers,
        plugin_transfer: files.plugin_transfer,
        hooks_attempted: subject.number("/status/hookStatus/hooksAttempted"),
        hooks_failed: subject.number("/status/hookStatus/hooksFailed"),
        source: if operation.is_some() { "operation" } else { "subject" },
        attempt: operation.as_ref().and_then(|status| status.attempt),
        tasks: if running && subject.tree().is_some() { wait::rows(subject) } else { Vec::new() },
        stages: operation
            .map(|status| status.stages.iter().filter_map(|stage| serde_json::to_value(stage).ok()).collect())
            .unwrap_or_default(),
        notes: files.notes,
    }
}

fn progress(subject: &Subject, running: bool, backup_items: Option<u64>) -> Progress {
    let items = subject.items();
    let live = |pointer: &str| subject.object.pointer(pointer).filter(|value| running && !value.is_null()).cloned();
    let text = |pointer: &str| live(pointer).and_then(|value| value.as_str().map(str::to_owned));
    let total = items.total.value();
    Progress {
        percent: subject.text("/status/plimsoll/percent").map(str::to_owned),
        total_items: total,
        done: items.done,
        skipped: items.skipped,
        failed: items.failed,
        excluded: backup_items.and_then(|all| Some(all.saturating_sub(total?))),
        backup_items,
        rate: live("/status/plimsoll/rate").and_then(|rate| rate.as_u64()),
        unit: live("/status/plimsoll/unit").and_then(|unit| serde_json::from_value(unit).ok()),
        seconds_left: live("/status/plimsoll/secondsLeft").and_then(|left| serde_json::from_value(left).ok()),
        from: text("/status/plimsoll/from"),
        estimate: text("/status/plimsoll/estimate"),
        waits_for: text("/status/plimsoll/waitsFor"),
        last_advance: text("/status/plimsoll/lastAdvance"),
        doing: text("/status/plimsoll/task"),
        verdict: text("/status/plimsoll/verdict"),
        stalled: live("/status/plimsoll/stalled"),
    }
}

/// From `ns/name(created)` to how many were created in `ns`; items of a backup are backed up.
fn by_namespace(items: &BTreeMap<String, Vec<String>>) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut counts: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for entry in items.values().flatten() {
        let (path, what) = match entry.strip_suffix(')').and_then(|entry| entry.rsplit_once('(')) {
            Some((path, what)) => (path, what),
            None => (entry.as_str(), "backed up"),
        };
        let namespace = path.split_once('/').map_or("", |(namespace, _)| namespace);
        *counts.entry(namespace.to_owned()).or_default().entry(what.to_owned()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_counted_by_namespace_and_result() {
        let entries = ["shop/a(created)", "shop/b(created)", "shop/c(skipped)", "x(failed)"].map(str::to_owned);
        let counts = by_namespace(&[("v1/ConfigMap".to_owned(), entries.to_vec())].into());
        let shop = [("created".to_owned(), 2), ("skipped".to_owned(), 1)].into();
        assert_eq!(counts, [("shop".to_owned(), shop), (String::new(), [("failed".to_owned(), 1)].into())].into());
    }
}
