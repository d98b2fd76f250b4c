//! Velero's metrics, `velero_…`, with its names, labels and meanings, as far as the cluster's objects have the values.

use std::collections::BTreeMap;

use plimsoll_api::labels;
use plimsoll_observe::{ClusterState, Kind, Object, operation_of};

use super::MAX_SERIES;
use super::exposition::{Exposition, to_sample};
use super::totals::{BackupSums, Totals, end};

/// A counter: name, kind, outcomes and help.
type Counter = (&'static str, Kind, &'static [&'static str], &'static str);

const ALL: &[&str] = &["succeeded", "partially_failed", "failed", "refused", "cancelled"];
const COUNTERS: [Counter; 13] = [
    ("velero_backup_attempt_total", Kind::Backup, ALL, "Ended backups."),
    ("velero_backup_success_total", Kind::Backup, &["succeeded"], "Successful backups."),
    ("velero_backup_partial_failure_total", Kind::Backup, &["partially_failed"], "Partially failed backups."),
    ("velero_backup_failure_total", Kind::Backup, &["failed", "cancelled"], "Failed backups."),
    ("velero_backup_validation_failure_total", Kind::Backup, &["refused"], "Backups that failed validation."),
    ("velero_restore_attempt_total", Kind::Restore, ALL, "Ended restores."),
    ("velero_restore_success_total", Kind::Restore, &["succeeded"], "Successful restores."),
    ("velero_restore_partial_failure_total", Kind::Restore, &["partially_failed"], "Partially failed restores."),
    ("velero_restore_failed_total", Kind::Restore, &["failed", "cancelled"], "Failed restores."),
    ("velero_restore_validation_failed_total", Kind::Restore, &["refused"], "Restores that failed validation."),
    ("velero_backup_deletion_attempt_total", Kind::DeleteBackupRequest, ALL, "Ended deletions of backups."),
    (
        "velero_backup_deletion_success_total",
        Kind::DeleteBackupRequest,
        &["succeeded"],
        "Successful deletions of backups.",
    ),
    ("velero_backup_deletion_failure_total", Kind::DeleteBackupRequest, &["failed"], "Failed deletions of backups."),
];

/// A sum over ended backups: name, value and help.
type Sum = (&'static str, fn(&BackupSums) -> u64, &'static str);

const SUMS: [Sum; 4] = [
    ("velero_backup_warning_total", |sums| sums.warned, "Backups that ended with warnings."),
    ("velero_volume_snapshot_attempt_total", |sums| sums.snapshots_attempted, "Snapshots attempted by plugins."),
    ("velero_volume_snapshot_success_total", |sums| sums.snapshots_completed, "Snapshots completed by plugins."),
    (
        "velero_volume_snapshot_failure_total",
        BackupSums::snapshots_failed,
        "Snapshots that plugins failed to complete.",
    ),
];

/// Writes all of Velero's metrics.
pub fn write(exposition: &mut Exposition, cluster: &ClusterState, totals: &Totals) {
    for (name, kind, outcomes, help) in COUNTERS {
        counter(exposition, cluster, totals, (name, kind, outcomes, help));
    }
    for (name, pick, help) in SUMS {
        let mut sums = from_zero(cluster);
        for (schedule, backups) in &totals.backups {
            *sums.entry(schedule).or_default() += pick(backups);
        }
        by_schedule(exposition, name, help, sums);
    }
    csi_snapshots(exposition, cluster);
    let mut durations =
        exposition.family("velero_backup_duration_seconds", "histogram", "Duration of successful backups.");
    for (schedule, histogram) in &totals.backup_durations {
        durations.add_histogram(&[("schedule", schedule)], histogram);
    }
    exposition.family("velero_backup_total", "gauge", "Existing backups.").add(&[], count(cluster, Kind::Backup));
    exposition.family("velero_restore_total", "gauge", "Existing restores.").add(&[], count(cluster, Kind::Restore));
    latest(exposition, cluster);
    let mut status =
        exposition.family("velero_backup_location_status_gauge", "gauge", "1 if the location is available.");
    for location in cluster.all(Kind::Location).iter().take(MAX_SERIES) {
        let available = location.phase() == "Available";
        status.add(&[("backup_location_name", location.name())], f64::from(u8::from(available)));
    }
}

fn count(cluster: &ClusterState, kind: Kind) -> f64 {
    to_sample(cluster.all(kind).len() as u64)
}

/// Every schedule has its counters from the start: a rate needs a zero to begin with.
fn from_zero(cluster: &ClusterState) -> BTreeMap<&str, u64> {
    let schedules = cluster.all(Kind::Schedule).iter().take(MAX_SERIES);
    schedules.map(Object::name).chain([""]).map(|schedule| (schedule, 0)).collect()
}

fn counter(
    exposition: &mut Exposition,
    cluster: &ClusterState,
    totals: &Totals,
    (name, kind, outcomes, help): Counter,
) {
    let mut sums = if kind == Kind::DeleteBackupRequest { BTreeMap::from([("", 0)]) } else { from_zero(cluster) };
    for ((counted, schedule, outcome), number) in &totals.ended {
        if *counted == kind && outcomes.contains(outcome) {
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

/// Velero adds the backup's name as a label: the newest backups have series of their own, whose values do not change.
fn csi_snapshots(exposition: &mut Exposition, cluster: &ClusterState) {
    let attempted = |backup: &Object| backup.number("/status/csiVolumeSnapshotsAttempted").unwrap_or(0);
    let completed = |backup: &Object| backup.number("/status/csiVolumeSnapshotsCompleted").unwrap_or(0);
    let asked = cluster.all(Kind::Backup).iter().filter(|backup| is_ended(backup) && attempted(backup) > 0);
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
    counter("velero_csi_snapshot_attempt_total", "CSI snapshots attempted.", &attempted);
    counter("velero_csi_snapshot_success_total", "CSI snapshots completed.", &completed);
    counter("velero_csi_snapshot_failure_total", "CSI snapshots that failed.", &|backup| {
        attempted(backup).saturating_sub(completed(backup))
    });
}

fn is_ended(backup: &Object) -> bool {
    matches!(backup.phase(), "Completed" | "PartiallyFailed" | "Failed")
}

/// The size of a backup's tarball, where our own server created it and recorded that. A failed backup may have none.
fn tarball_bytes(backup: &Object, cluster: &ClusterState) -> Option<f64> {
    if backup.phase() == "Failed" {
        return None;
    }
    let stages = operation_of(backup, cluster)?.list("/status/stages");
    let reading = stages.iter().find(|stage| stage["name"] == "reading")?;
    reading["bytes"].as_u64().filter(|bytes| *bytes > 0).map(to_sample)
}

/// The latest backup of each schedule.
fn latest(exposition: &mut Exposition, cluster: &ClusterState) {
    let (mut last, mut good): (BTreeMap<&str, &Object>, BTreeMap<&str, &Object>) = (BTreeMap::new(), BTreeMap::new());
    for backup in cluster.all(Kind::Backup).iter().filter(|backup| is_ended(backup)) {
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
        "End of the last successful backup, in seconds since 1970.",
        &good,
        |backup| end(backup).map(|end| to_sample(u64::try_from(end.as_second()).unwrap_or(0))),
    );
    gauge(exposition, "velero_backup_last_status", "1 if the latest backup succeeded.", &last, |backup| {
        Some(f64::from(u8::from(backup.phase() == "Completed")))
    });
    gauge(exposition, "velero_backup_items_total", "Items in the latest backup.", &last, |backup| {
        backup.number("/status/progress/totalItems").map(to_sample)
    });
    gauge(exposition, "velero_backup_items_errors", "Errors in the latest backup.", &last, |backup| {
        Some(to_sample(backup.number("/status/errors").unwrap_or(0)))
    });
    gauge(exposition, "velero_backup_tarball_size_bytes", "Size of the latest backup's tarball.", &last, |backup| {
        tarball_bytes(backup, cluster)
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
