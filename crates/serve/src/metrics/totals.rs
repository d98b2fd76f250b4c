//! Counters and durations of what ended since this process started.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use plimsoll_api::labels;
use plimsoll_observe::{Kind, Object, OperationSummary, Verdict};

use super::MAX_SERIES;
use super::exposition::Histogram;

/// From a second to a day.
const DURATIONS: &[f64] = &[1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0];
/// The bounds of Velero's own histogram.
const VELERO_DURATIONS: &[f64] = &[60.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10800.0, 14400.0];

/// Counts ended operations, each of them once.
#[derive(Debug)]
pub struct Totals {
    since: Timestamp,
    counted: HashSet<String>,
    /// Durations of operations, by kind and outcome.
    pub durations: BTreeMap<(&'static str, &'static str), Histogram>,
    /// Durations of successful backups, by schedule.
    pub backup_durations: BTreeMap<String, Histogram>,
    /// Ended operations, by kind, schedule and outcome.
    pub ended: BTreeMap<(Kind, String, &'static str), u64>,
    /// Sums over ended backups, by schedule.
    pub backups: BTreeMap<String, BackupSums>,
}

/// Sums over several backups.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackupSums {
    /// Backups with warnings.
    pub warned: u64,
    /// Snapshots that plugins attempted.
    pub snapshots_attempted: u64,
    /// Snapshots that plugins completed.
    pub snapshots_completed: u64,
}

impl BackupSums {
    fn add(&mut self, backup: &Object) {
        let count = |field: &str| backup.number(&format!("/status/{field}")).unwrap_or(0);
        self.warned += u64::from(count("warnings") > 0);
        self.snapshots_attempted += count("volumeSnapshotsAttempted");
        self.snapshots_completed += count("volumeSnapshotsCompleted");
    }

    /// Snapshots that were attempted and not completed.
    pub fn snapshots_failed(&self) -> u64 {
        self.snapshots_attempted.saturating_sub(self.snapshots_completed)
    }
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            // Completion timestamps have whole seconds.
            since: Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default(),
            counted: HashSet::new(),
            durations: BTreeMap::new(),
            backup_durations: BTreeMap::new(),
            ended: BTreeMap::new(),
            backups: BTreeMap::new(),
        }
    }
}

/// The label value of a verdict.
pub fn outcome_label(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fine => "succeeded",
        Verdict::PartiallyFailed => "partially_failed",
        Verdict::Failed => "failed",
        Verdict::Refused => "refused",
        Verdict::Cancelled => "cancelled",
        Verdict::Stuck => "stuck",
        Verdict::Quiet => "quiet",
        Verdict::Waiting => "waiting",
        Verdict::Moving => "moving",
    }
}

type Index<'w> = HashMap<(Kind, &'w str, &'w str), &'w Object>;

impl Totals {
    /// Counts what has ended since the last call.
    pub fn record(&mut self, lines: &[OperationSummary], objects: &Index<'_>) {
        let mut existing = HashSet::new();
        for line in lines.iter().filter(|line| line.explanation.verdict.is_ended()) {
            let Some(object) = crate::dashboard_state::find(line, objects) else { continue };
            let uid = object.text("/metadata/uid").to_owned();
            if !self.counted.contains(&uid) && end(object).is_some_and(|end| end >= self.since) {
                self.count(line, object);
            }
            existing.insert(uid);
        }
        self.counted = existing;
    }

    fn count(&mut self, line: &OperationSummary, object: &Object) {
        let (kind, outcome) = (line.reference.kind, outcome_label(line.explanation.verdict));
        let schedule = object.label(labels::SCHEDULE_NAME).to_owned();
        if self.ended.len() < MAX_SERIES || self.ended.contains_key(&(kind, schedule.clone(), outcome)) {
            *self.ended.entry((kind, schedule.clone(), outcome)).or_default() += 1;
        }
        let room = self.backups.len() < MAX_SERIES || self.backups.contains_key(&schedule);
        if kind == Kind::Backup && room {
            self.backups.entry(schedule.clone()).or_default().add(object);
        }
        let Some(duration) = duration_seconds(object) else { return };
        self.durations.entry((kind.word(), outcome)).or_insert_with(|| Histogram::new(DURATIONS)).observe(duration);
        let room = self.backup_durations.len() < MAX_SERIES || self.backup_durations.contains_key(&schedule);
        if kind == Kind::Backup && outcome == "succeeded" && room {
            let histogram = self.backup_durations.entry(schedule);
            histogram.or_insert_with(|| Histogram::new(VELERO_DURATIONS)).observe(duration);
        }
    }
}

/// When it ended.
pub fn end(object: &Object) -> Option<Timestamp> {
    object.time("/status/completionTimestamp").or_else(|| object.last_write())
}

/// The duration of an ended operation.
fn duration_seconds(object: &Object) -> Option<f64> {
    let start = object.time("/status/startTimestamp").or_else(|| object.created())?;
    Some(end(object)?.duration_since(start).as_secs_f64().max(0.0))
}
