//! `velero_…`: the names, labels and meanings of Velero's own metrics, for what can be known from the cluster's objects.

use std::collections::BTreeMap;

use plimsoll_api::labels;
use plimsoll_observe::{Kind, Object, World, operation_of};

use super::MAX_SERIES;
use super::exposition::{Exposition, to_sample};
use super::totals::{BackupSums, Totals, end};

/// A counter, the kind it counts, and the endings it counts.
type Counter = (&'static str, Kind, &'static [&'static str], &'static str);

const ALL: &[&str] = &["succeeded", "partially_failed", "failed", "refused", "cancelled"];
const COUNTERS: [Counter; 13] = [
    ("velero_backup_attempt_total", Kind::Backup, ALL, "Backups that were attempted and have ended."),
    ("velero_backup_success_total", Kind::Backup, &["succeeded"], "Backups that succeeded."),
    ("velero_backup_partial_failure_total", Kind::Backup, &["partially_failed"], "Backups that failed partially."),
    ("velero_backup_failure_total", Kind::Backup, &["failed", "cancelled"], "Backups that failed."),
    ("velero_backup_validation_failure_total", Kind::Backup, &["refused"], "Backups that were refused."),
    ("velero_restore_attempt_total", Kind::Restore, ALL, "Restores that were attempted and have ended."),
    ("velero_restore_success_total", Kind::Restore, &["succeeded"], "Restores that succeeded."),
    ("velero_restore_partial_failure_total", Kind::Restore, &["partially_failed"], "Restores that failed partially."),
    ("velero_restore_failed_total", Kind::Restore, &["failed", "cancelled"], "Restores that failed."),
    ("velero_restore_validation_failed_total", Kind::Restore, &["refused"], "Restores that were refused."),
    ("velero_backup_deletion_attempt_total", Kind::DeleteBackupRequest, ALL, "Deletions of backups that have ended."),
    ("velero_backup_deletion_success_total", Kind::DeleteBackupRequest, &["succeeded"], "Deletions that succeeded."),
    ("velero_backup_deletion_failure_total", Kind::DeleteBackupRequest, &["failed"], "Deletions that failed."),
];

/// A counter of what backups say of themselves.
type Sum = (&'static str, fn(&BackupSums) -> u64, &'static str);

const SUMS: [Sum; 4] = [
    ("velero_backup_warning_total", |sums| sums.warned, "Backups that ended with warnings."),
    ("velero_volume_snapshot_attempt_total", |sums| sums.snapshots_attempted, "Snapshots that plugins were asked for."),
    ("velero_volume_snapshot_success_total", |sums| sums.snapshots_completed, "Snapshots that plugins took."),
    ("velero_volume_snapshot_failure_total", BackupSums::snapshots_failed, "Snapshots that plugins did not take."),
];

/// Everything of Velero's.
pub fn write(exposition: &mut Exposition, world: &World, totals: &Totals) {
    for (name, kind, endings, help) in COUNTERS {
        counter(exposition, world, totals, (name, kind, endings, help));
    }
    for (name, pick, help) in SUMS {
        let mut sums = from_zero(world);
        for (schedule, backups) in &totals.backups {
            *sums.entry(schedule).or_default() += pick(backups);
        }
        by_schedule(exposition, name, help, sums);
    }
    csi_snapshots(exposition, world);
    let mut durations = exposition.family("velero_backup_duration_seconds", "histogram", "How long good backups took.");
    for (schedule, histogram) in &totals.backup_durations {
        durations.add_histogram(&[("schedule", schedule)], histogram);
    }
    exposition.family("velero_backup_total", "gauge", "Backups there are.").add(&[], count(world, Kind::Backup));
    exposition.family("velero_restore_total", "gauge", "Restores there are.").add(&[], count(world, Kind::Restore));
    latest(exposition, world);
    let mut status =
        exposition.family("velero_backup_location_status_gauge", "gauge", "1 if the location is available.");
    for location in world.all(Kind::Location).iter().take(MAX_SERIES) {
        let available = location.phase() == "Available";
        status.add(&[("backup_location_name", location.name())], f64::from(u8::from(available)));
    }
}

fn count(world: &World, kind: Kind) -> f64 {
    to_sample(world.all(kind).len() as u64)
}

/// Every schedule has its counters from the beginning: a rate needs a zero to start from.
fn from_zero(world: &World) -> BTreeMap<&str, u64> {
    let schedules = world.all(Kind::Schedule).iter().take(MAX_SERIES);
    schedules.map(Object::name).chain([""]).map(|schedule| (schedule, 0)).collect()
}

fn counter(exposition: &mut Exposition, world: &World, totals: &Totals, (name, kind, endings, help): Counter) {
    let mut sums = if kind == Kind::DeleteBackupRequest { BTreeMap::from([("", 0)]) } else { from_zero(world) };
    for ((counted, schedule, how), number) in &totals.ended {
        if *counted == kind && endings.contains(how) {
            *sums.entry(schedule).or_default() += number;
        }
    }
    by_schedule(exposition, name, help, sums);
}

fn by_schedule(exposition: &mut Exposition, name: &'static str, help: &str, sums: BTreeMap<&str, u64>) {
    let mut family = exposition.family(name, "counter", help);
    for (schedule, sum) in sums {
        family.add(&[("schedule", schedule)], to_sample(sum));
    }
}

/// Velero names the backup here: the newest that there are stand for themselves, and their numbers do not change any more.
fn csi_snapshots(exposition: &mut Exposition, world: &World) {
    let attempted = |backup: &Object| backup.number("/status/csiVolumeSnapshotsAttempted").unwrap_or(0);
    let completed = |backup: &Object| backup.number("/status/csiVolumeSnapshotsCompleted").unwrap_or(0);
    let asked = world.all(Kind::Backup).iter().filter(|backup| is_ended(backup) && attempted(backup) > 0);
    let mut newest: Vec<&Object> = asked.collect();
    newest.sort_by_key(|backup| std::cmp::Reverse(end(backup)));
    newest.truncate(MAX_SERIES);
    let mut counter = |name: &'static str, help: &str, pick: &dyn Fn(&Object) -> u64| {
        let mut family = exposition.family(name, "counter", help);
        for backup in &newest {
            let labels = [("schedule", backup.label(labels::SCHEDULE_NAME)), ("backupName", backup.name())];
            family.add(&labels, to_sample(pick(backup)));
        }
    };
    counter("velero_csi_snapshot_attempt_total", "CSI snapshots that were asked for.", &attempted);
    counter("velero_csi_snapshot_success_total", "CSI snapshots that became ready.", &completed);
    counter("velero_csi_snapshot_failure_total", "CSI snapshots that did not become ready.", &|backup| {
        attempted(backup).saturating_sub(completed(backup))
    });
}

fn is_ended(backup: &Object) -> bool {
    matches!(backup.phase(), "Completed" | "PartiallyFailed" | "Failed")
}

/// How large the tarball of a backup is, where our own server made it and wrote that down. One that failed may have none.
fn tarball_bytes(backup: &Object, world: &World) -> Option<f64> {
    if backup.phase() == "Failed" {
        return None;
    }
    let stages = operation_of(backup, world)?.list("/status/stages");
    let reading = stages.iter().find(|stage| stage["name"] == "reading")?;
    reading["bytes"].as_u64().filter(|bytes| *bytes > 0).map(to_sample)
}

/// The latest backup of each schedule.
fn latest(exposition: &mut Exposition, world: &World) {
    let (mut last, mut good): (BTreeMap<&str, &Object>, BTreeMap<&str, &Object>) = (BTreeMap::new(), BTreeMap::new());
    for backup in world.all(Kind::Backup).iter().filter(|backup| is_ended(backup)) {
        let schedule = backup.label(labels::SCHEDULE_NAME);
        let later = |known: Option<&&Object>| known.is_none_or(|known| end(known) < end(backup));
        if later(last.get(schedule)) {
            last.insert(schedule, backup);
        }
        if backup.phase() == "Completed" && later(good.get(schedule)) {
            good.insert(schedule, backup);
        }
    }
    gauge(
        exposition,
        "velero_backup_last_successful_timestamp",
        "When the last good backup ended, in seconds since 1970.",
        &good,
        |backup| end(backup).map(|end| to_sample(u64::try_from(end.as_second()).unwrap_or(0))),
    );
    gauge(exposition, "velero_backup_last_status", "1 if the latest backup is good.", &last, |backup| {
        Some(f64::from(u8::from(backup.phase() == "Completed")))
    });
    gauge(exposition, "velero_backup_items_total", "Items in the latest backup.", &last, |backup| {
        backup.number("/status/progress/totalItems").map(to_sample)
    });
    gauge(exposition, "velero_backup_items_errors", "Errors in the latest backup.", &last, |backup| {
        Some(to_sample(backup.number("/status/errors").unwrap_or(0)))
    });
    gauge(exposition, "velero_backup_tarball_size_bytes", "Size of the latest backup's tarball.", &last, |backup| {
        tarball_bytes(backup, world)
    });
}

fn gauge(
    exposition: &mut Exposition,
    name: &'static str,
    help: &str,
    backups: &BTreeMap<&str, &Object>,
    pick: impl Fn(&Object) -> Option<f64>,
) {
    let mut family = exposition.family(name, "gauge", help);
    for (schedule, backup) in backups.iter().take(MAX_SERIES) {
        if let Some(value) = pick(backup) {
            family.add(&[("schedule", schedule)], value);
        }
    }
}
