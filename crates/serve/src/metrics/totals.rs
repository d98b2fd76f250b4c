//! What has happened since this process began to look: counters and durations.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use plimsoll_api::labels;
use plimsoll_observe::{Kind, Line, Object, Verdict};

use super::MAX_SERIES;
use super::exposition::Histogram;

/// From a second to a day.
const DURATIONS: &[f64] = &[1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0];
/// The bounds that Velero's own histogram has.
const VELERO_DURATIONS: &[f64] = &[60.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10800.0, 14400.0];

/// Counts what has ended, each thing once.
#[derive(Debug)]
pub struct Totals {
    since: Timestamp,
    counted: HashSet<String>,
    /// How long operations took, by kind and how they ended.
    pub durations: BTreeMap<(&'static str, &'static str), Histogram>,
    /// How long backups took, by schedule.
    pub backup_durations: BTreeMap<String, Histogram>,
    /// How many ended, by kind, schedule and how they ended.
    pub ended: BTreeMap<(Kind, String, &'static str), u64>,
    /// What the backups that ended say of themselves, by schedule.
    pub backups: BTreeMap<String, BackupSums>,
}

/// Numbers of several backups together.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackupSums {
    /// Backups with warnings.
    pub warned: u64,
    /// Snapshots that plugins were asked for.
    pub snapshots_attempted: u64,
    /// Those that were taken.
    pub snapshots_completed: u64,
}

impl BackupSums {
    fn add(&mut self, backup: &Object) {
        let count = |field: &str| backup.number(&format!("/status/{field}")).unwrap_or(0);
        self.warned += u64::from(count("warnings") > 0);
        self.snapshots_attempted += count("volumeSnapshotsAttempted");
        self.snapshots_completed += count("volumeSnapshotsCompleted");
    }

    /// Snapshots that were asked for and not taken.
    pub fn snapshots_failed(&self) -> u64 {
        self.snapshots_attempted.saturating_sub(self.snapshots_completed)
    }
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            // Ends are told in whole seconds.
            since: Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default(),
            counted: HashSet::new(),
            durations: BTreeMap::new(),
            backup_durations: BTreeMap::new(),
            ended: BTreeMap::new(),
            backups: BTreeMap::new(),
        }
    }
}

/// How an operation ended, as a label.
pub fn outcome(verdict: Verdict) -> &'static str {
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
    /// Counts what has ended since the last look.
    pub fn see(&mut self, lines: &[Line], objects: &Index<'_>) {
        let mut there = HashSet::new();
        for line in lines.iter().filter(|line| line.told.verdict.is_ended()) {
            let Some(object) = crate::board::find(line, objects) else { continue };
            let uid = object.text("/metadata/uid").to_owned();
            if !self.counted.contains(&uid) && end(object).is_some_and(|end| end >= self.since) {
                self.count(line, object);
            }
            there.insert(uid);
        }
        self.counted = there;
    }

    fn count(&mut self, line: &Line, object: &Object) {
        let (kind, how) = (line.reference.kind, outcome(line.told.verdict));
        let schedule = object.label(labels::SCHEDULE_NAME).to_owned();
        if self.ended.len() < MAX_SERIES || self.ended.contains_key(&(kind, schedule.clone(), how)) {
            *self.ended.entry((kind, schedule.clone(), how)).or_default() += 1;
        }
        let room = self.backups.len() < MAX_SERIES || self.backups.contains_key(&schedule);
        if kind == Kind::Backup && room {
            self.backups.entry(schedule.clone()).or_default().add(object);
        }
        let Some(took) = took(object) else { return };
        self.durations.entry((kind.word(), how)).or_insert_with(|| Histogram::new(DURATIONS)).observe(took);
        let room = self.backup_durations.len() < MAX_SERIES || self.backup_durations.contains_key(&schedule);
        if kind == Kind::Backup && how == "succeeded" && room {
            let histogram = self.backup_durations.entry(schedule);
            histogram.or_insert_with(|| Histogram::new(VELERO_DURATIONS)).observe(took);
        }
    }
}

/// When it ended.
pub fn end(object: &Object) -> Option<Timestamp> {
    object.time("/status/completionTimestamp").or_else(|| object.last_write())
}

/// How many seconds it took.
fn took(object: &Object) -> Option<f64> {
    let start = object.time("/status/startTimestamp").or_else(|| object.created())?;
    Some(end(object)?.duration_since(start).as_secs_f64().max(0.0))
}
