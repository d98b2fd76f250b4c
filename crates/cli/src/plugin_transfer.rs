//! Snapshots of plugins and volumes made from them, as the command line sees them: one shape for both directions.
//!
//! Whatever a plugin wrote about itself is foreign text: no control characters, not endless.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use plimsoll_progress::{percent_string, view};
use serde::Serialize;
use serde_json::{Value, json};

use crate::draw;
use crate::transfer::{self, Direction, NO_POD, Transfer, TransferFilter};

/// The maximum length of a text of a plugin.
const MAX_TEXT_LENGTH: usize = 200;
/// The maximum number of plugin-specific fields that are shown.
const MAX_PLUGIN_FIELDS: usize = 20;

/// One piece of a plugin's work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginTransfer {
    pub direction: Direction,
    pub name: String,
    /// The backup or restore it belongs to.
    #[serde(skip)]
    pub of: String,
    #[serde(skip)]
    pub verdict: String,
    #[serde(skip)]
    pub stalled: String,
    #[serde(skip)]
    pub created: Option<Timestamp>,
    /// The PersistentVolume.
    pub volume: String,
    pub plugin: String,
    pub phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_done: Option<u64>,
    /// Bytes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<[u64; 2]>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(rename = "snapshotID", skip_serializing_if = "String::is_empty")]
    pub snapshot: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub plugin_specific: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<String>,
}

/// Foreign text, as it may be shown.
fn clean(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |c: char| if c.is_control() || turns(c) { ' ' } else { c };
    let mut cleaned: String = text.trim().chars().take(MAX_TEXT_LENGTH).map(shown).collect();
    if text.trim().chars().nth(MAX_TEXT_LENGTH).is_some() {
        cleaned.push('…');
    }
    cleaned
}

impl PluginTransfer {
    fn of(record: &Value, direction: Direction, now: Timestamp) -> Self {
        let text = |place: &str| clean(record.pointer(place).and_then(Value::as_str).unwrap_or_default());
        let count = |place: &str| record.pointer(place).and_then(Value::as_u64);
        let (total_bytes, bytes_done) = (count("/status/progress/totalBytes"), count("/status/progress/bytesDone"));
        let time = |place: &str| Some(text(place)).filter(|time| !time.is_empty());
        let said = record.pointer("/spec/pluginSpecific").and_then(Value::as_object).into_iter().flatten();
        let said =
            said.take(MAX_PLUGIN_FIELDS).map(|(key, value)| (clean(key), clean(value.as_str().unwrap_or_default())));
        let (volume, snapshot) = match direction {
            Direction::Backup => (text("/spec/volume"), text("/status/snapshotID")),
            Direction::Restore => (text("/status/volumeID"), text("/spec/snapshotID")),
        };
        let mut work = Self {
            direction,
            name: text("/metadata/name"),
            of: text(match direction {
                Direction::Backup => "/metadata/labels/velero.io~1backup-name",
                Direction::Restore => "/metadata/labels/velero.io~1restore-name",
            }),
            verdict: text("/status/plimsoll/verdict"),
            stalled: text("/status/plimsoll/stalled/message"),
            created: text("/metadata/creationTimestamp").parse().ok(),
            volume,
            plugin: text("/spec/plugin"),
            phase: Some(text("/status/phase")).filter(|phase| !phase.is_empty()).unwrap_or_else(|| "New".into()),
            percent: None,
            total_bytes: total_bytes.filter(|total| *total > 0),
            bytes_done,
            rate: count("/status/plimsoll/rate"),
            seconds_left: None,
            message: text("/status/message"),
            snapshot,
            plugin_specific: said.collect(),
            started: time("/status/startTimestamp"),
            completed: time("/status/completionTimestamp"),
        };
        work.estimate(record, now);
        work
    }

    /// Whether it will not change any more.
    fn is_ended(&self) -> bool {
        let ends = ["Completed", "Failed", "Canceled", "Cancelled"];
        self.completed.is_some() || ends.iter().any(|end| end.eq_ignore_ascii_case(&self.phase))
    }

    /// Percentage, rate and time left. A record that a plugin keeps has no rate: then it is that since its beginning.
    fn estimate(&mut self, record: &Value, now: Timestamp) {
        let total = self.total_bytes.unwrap_or(u64::MAX);
        self.bytes_done = self.bytes_done.map(|done| done.min(total));
        let (done, completed) = (self.bytes_done.unwrap_or(0), self.phase.eq_ignore_ascii_case("Completed"));
        // What the server says of a plugin's numbers: they may go back.
        let put_right = record.pointer("/status/plimsoll/percent").and_then(Value::as_str).filter(|_| !completed);
        let put_right = put_right.map(|percent| clean(percent.trim_start_matches(['~', '≥'])));
        self.percent = put_right.or_else(|| self.total_bytes.map(|total| percent_string(done, total, completed)));
        if self.is_ended() {
            self.rate = None;
            return;
        }
        let said = record.pointer("/status/plimsoll/secondsLeft").cloned().unwrap_or_default();
        self.seconds_left = serde_json::from_value(said).ok();
        let started = self.started.as_deref().and_then(|time| time.parse::<Timestamp>().ok());
        if let (None, Some(started)) = (self.rate, started.filter(|_| done > 0)) {
            let seconds = u64::try_from(now.duration_since(started).as_secs()).unwrap_or(0);
            self.rate = done.checked_div(seconds);
            let left = self.total_bytes.map(|total| total.saturating_sub(done));
            let left = self.rate.and_then(|rate| left?.checked_div(rate));
            self.seconds_left = self.seconds_left.or_else(|| left.map(|left| [left, left]));
        }
    }

    /// `pv-1: InProgress, 42.17 %, 4.1 KiB of 9.8 KiB, 1.0 KiB/s, 6s left, copying` — and a note where the plugin reports no percentage.
    pub fn line(&self) -> String {
        let mut parts = vec![self.phase.clone()];
        match &self.percent {
            Some(percent) => parts.push(format!("{percent} %")),
            None if self.is_ended() => {}
            None => parts.push("no percentage: the plugin reports no total".into()),
        }
        match (self.bytes_done, self.total_bytes) {
            (Some(done), Some(total)) => {
                parts.push(format!("{} of {}", view::size_text(done), view::size_text(total)));
            }
            (Some(done), None) if done > 0 => parts.push(view::size_text(done)),
            _ => {}
        }
        parts.extend(self.rate.map(|rate| format!("{}/s", view::size_text(rate))));
        parts.extend(self.seconds_left.map(left_text));
        parts.extend(Some(self.message.clone()).filter(|message| !message.is_empty()));
        let volume = if self.volume.is_empty() { &self.name } else { &self.volume };
        format!("{volume}: {}", parts.join(", "))
    }

    /// Shown only with `--details`.
    pub fn details(&self) -> Vec<String> {
        let mut lines = vec![format!("Plugin: {}", self.plugin)];
        if !self.snapshot.is_empty() {
            lines.push(format!("Snapshot ID: {}", self.snapshot));
        }
        lines.extend(self.plugin_specific.iter().map(|(key, value)| format!("{key}: {value}")));
        lines.extend(self.started.iter().map(|time| format!("Started: {time}")));
        lines.extend(self.completed.iter().map(|time| format!("Completed: {time}")));
        lines
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn left_text([low, high]: [u64; 2]) -> String {
    let [low, high] = [low, high].map(|seconds| draw::duration(seconds as f64));
    if low == high { format!("{low} left") } else { format!("{low} to {high} left") }
}

/// Among the transfers of volume data it stands as one: the plugin is what moves, and no pod is known.
impl From<&PluginTransfer> for Transfer {
    fn from(work: &PluginTransfer) -> Self {
        let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let time = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok());
        let (said, ended) = (some(&work.message), work.is_ended());
        Self {
            kind: kind(work.direction),
            direction: work.direction,
            name: work.name.clone(),
            of: work.of.clone(),
            namespace: String::new(),
            pod: NO_POD.to_owned(),
            volume: work.volume.clone(),
            node: String::new(),
            uploader: work.plugin.clone(),
            phase: spelled(&work.phase).filter(|_| ended).unwrap_or(&work.phase).to_owned(),
            percent: work.percent.clone(),
            is_estimate: false,
            total_bytes: work.total_bytes,
            bytes_done: work.bytes_done,
            incremental_bytes: None,
            total_files: None,
            files_done: None,
            doing: said.clone().filter(|_| !ended),
            rate: work.rate,
            seconds_left: work.seconds_left,
            verdict: some(&work.verdict).filter(|_| !ended),
            token: None,
            stalled: some(&work.stalled).filter(|_| !ended),
            message: said.filter(|_| ended),
            snapshot: some(&work.snapshot),
            plugin_specific: work.plugin_specific.clone(),
            created: work.created,
            started: time(&work.started),
            completed: time(&work.completed),
        }
    }
}

/// Plugins choose their own words; final states are mapped to those of other transfers.
fn spelled(phase: &str) -> Option<&'static str> {
    let endings = [
        ("Completed", "Completed"),
        ("Failed", "Failed"),
        ("Error", "Failed"),
        ("Canceled", "Canceled"),
        ("Cancelled", "Canceled"),
    ];
    endings.into_iter().find(|(theirs, _)| theirs.eq_ignore_ascii_case(phase)).map(|(_, ours)| ours)
}

fn kind(direction: Direction) -> &'static str {
    match direction {
        Direction::Backup => "VolumePluginBackup",
        Direction::Restore => "VolumePluginRestore",
    }
}

/// Reads what plugins do, for one backup or restore or for all of them, oldest first. A cluster that does not know the kinds has none.
pub async fn list(client: &Client, namespace: &str, of: TransferFilter<'_>) -> anyhow::Result<Vec<PluginTransfer>> {
    let mut found = Vec::new();
    for direction in [Direction::Backup, Direction::Restore] {
        if let Some(parameters) = transfer::parameters(of, direction) {
            found.extend(list_one_way(client, namespace, direction, &parameters).await?);
        }
    }
    Ok(found)
}

async fn list_one_way(
    client: &Client,
    namespace: &str,
    direction: Direction,
    parameters: &ListParams,
) -> anyhow::Result<Vec<PluginTransfer>> {
    let kind = kind(direction);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v1", kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let mut found = transfer::unless_unknown_kind(api.list(parameters).await)?;
    found.sort_by_key(|record| (record.creation_timestamp().map(|time| time.0), record.name_any()));
    let now = Timestamp::now();
    Ok(found.iter().map(|record| PluginTransfer::of(&json!(record), direction, now)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:10Z".parse().unwrap()
    }

    fn backup(status: &Value) -> PluginTransfer {
        let record = json!({ "metadata": { "name": "b-1" }, "status": status,
            "spec": { "volume": "pv-1", "backup": "b", "plugin": "x.io/y",
                "pluginSpecific": { "pool\u{1b}[31m": "a\nb" } } });
        PluginTransfer::of(&record, Direction::Backup, now())
    }

    #[test]
    fn a_server_record_shows_its_rate_and_a_plugin_record_the_average_rate() {
        let progress = json!({ "totalBytes": 20_480, "bytesDone": 10_240 });
        let ours = backup(&json!({ "phase": "InProgress", "progress": progress, "message": "copying",
            "plimsoll": { "rate": 1024, "secondsLeft": [8, 12] } }));
        assert_eq!(ours.line(), "pv-1: InProgress, 50.00 %, 10.0 KiB of 20.0 KiB, 1.0 KiB/s, 8s to 12s left, copying");
        let theirs =
            backup(&json!({ "phase": "Uploading", "progress": progress, "startTimestamp": "2026-01-01T00:00:00Z" }));
        assert_eq!(theirs.line(), "pv-1: Uploading, 50.00 %, 10.0 KiB of 20.0 KiB, 1.0 KiB/s, 10s left");
        let ended = backup(&json!({ "phase": "Completed", "progress": { "totalBytes": 9, "bytesDone": 99 } }));
        assert_eq!(ended.line(), "pv-1: Completed, 100.00 %, 9 B of 9 B");
    }

    #[test]
    fn plugin_numbers_that_decrease_or_exceed_their_total_are_corrected() {
        let theirs = |done: u64, percent: &str| {
            let progress = json!({ "totalBytes": 1000, "bytesDone": done });
            backup(&json!({ "phase": "Uploading", "progress": progress, "plimsoll": { "percent": percent } })).line()
        };
        assert_eq!(theirs(200, "~60.00"), "pv-1: Uploading, 60.00 %, 200 B of 1000 B");
        assert_eq!(theirs(5000, "~99.99"), "pv-1: Uploading, 99.99 %, 1000 B of 1000 B");
    }

    #[test]
    fn a_silent_plugin_has_no_percentage_and_foreign_text_is_cleaned_and_cut() {
        let quiet = backup(&json!({ "phase": "InProgress" }));
        assert_eq!(quiet.line(), "pv-1: InProgress, no percentage: the plugin reports no total");
        let long = backup(&json!({ "phase": "Failed", "message": "x\u{1b}]0;title\u{7}".repeat(100) }));
        assert!(!long.line().contains(char::is_control) && long.line().chars().count() < 250, "{}", long.line());
        let details = quiet.details().join("|");
        assert_eq!(details, "Plugin: x.io/y|pool [31m: a b");
    }

    #[test]
    fn a_plugin_transfer_keeps_its_own_final_phase_and_the_corrected_percentage() {
        let progress = json!({ "totalBytes": 1000, "bytesDone": 200 });
        let running = backup(&json!({ "phase": "Uploading", "progress": progress, "message": "copying",
            "plimsoll": { "percent": "~60.00", "rate": 40, "stalled": { "message": "nothing has moved" } } }));
        let running = Transfer::from(&running);
        assert_eq!((running.kind, running.percent().as_deref()), ("VolumePluginBackup", Some("60.00")));
        assert_eq!((running.doing.as_deref(), running.message.as_deref()), (Some("copying"), None));
        assert_eq!((running.is_ended(), running.stalled.as_deref()), (false, Some("nothing has moved")));
        assert_eq!((running.place().as_str(), running.uploader.as_str()), ("-", "x.io/y"));
        let ended = backup(&json!({ "phase": "SnapshotTaken", "progress": progress, "message": "copied",
            "completionTimestamp": "2026-01-01T00:00:05Z" }));
        let ended = Transfer::from(&ended);
        assert!(ended.is_ended());
        assert_eq!((ended.doing.as_deref(), ended.message.as_deref()), (None, Some("copied")));
        for (theirs, ours) in [("cancelled", "Canceled"), ("COMPLETED", "Completed"), ("Error", "Error")] {
            assert_eq!(Transfer::from(&backup(&json!({ "phase": theirs }))).phase, ours);
        }
        let silent = Transfer::from(&backup(&json!({})));
        assert_eq!((silent.phase.as_str(), silent.percent(), silent.is_ended()), ("New", None, false));
    }

    #[test]
    fn a_record_belongs_to_the_object_of_its_label() {
        let record = json!({ "metadata": { "name": "r-1", "labels":
            { "velero.io/backup-name": "b", "velero.io/restore-name": "r" } }, "spec": { "backup": "b" } });
        assert_eq!(PluginTransfer::of(&record, Direction::Backup, now()).of, "b");
        assert_eq!(PluginTransfer::of(&record, Direction::Restore, now()).of, "r");
    }
}
