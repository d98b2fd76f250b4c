//! Snapshots go with their backup.

use std::sync::Arc;

use kube::api::ListParams;
use plimsoll_api::labels;
use plimsoll_archive::volume_info::VolumeSnapshot;
use plimsoll_engine::{Error, kill};
use plimsoll_plugin::TracingLogSink;
use plimsoll_progress::{Task, Total, Unit};
use serde_json::{Value, json};
use tracing::warn;

use super::SnapshotServices;
use super::locations::SnapshotLocations;
use super::records::{RecordKind, Records, api, is_kept, text};

/// Deletes the snapshots of a backup. Returns what could not be deleted.
pub async fn delete_snapshots(
    services: &Arc<SnapshotServices>,
    snapshots: &[VolumeSnapshot],
    task: &Task,
) -> Result<Vec<String>, Error> {
    let opened_locations = SnapshotLocations::new(services, Arc::new(TracingLogSink));
    let steps = task.meter(Unit::Steps);
    steps.set_total(Total::Final(snapshots.len() as u64));
    let mut errors = Vec::new();
    for snapshot in snapshots {
        let id = &snapshot.status.provider_snapshot_id;
        if !id.is_empty()
            && let Err(why) = delete(services, &opened_locations, &snapshot.spec.location, id).await?
        {
            errors.push(format!("error deleting snapshot {id}: {why}"));
        }
        steps.add(1);
    }
    opened_locations.close().await;
    Ok(errors)
}

async fn delete(
    services: &SnapshotServices,
    opened_locations: &SnapshotLocations,
    location: &str,
    id: &str,
) -> Result<Result<(), String>, Error> {
    let snapshotter = match opened_locations.by_name(location).await? {
        Ok(snapshotter) => snapshotter,
        Err(why) => return Ok(Err(why)),
    };
    services.leader.fence.check()?;
    kill::point("snapshot.delete.before");
    let deleted = snapshotter.delete_snapshot(id).await;
    kill::point("snapshot.delete.after");
    Ok(deleted.map_err(|error| error.to_string()))
}

/// A backup that is given up leaves no orphaned snapshots. Best effort: what stays is named in its record.
pub async fn discard(services: &Arc<SnapshotServices>, backup_uid: &str) {
    let own = ListParams::default().labels(&format!("{}={backup_uid}", labels::BACKUP_UID));
    let left = match api(&services.leader, RecordKind::Backup).list(&own).await {
        Ok(left) => left,
        Err(error) => return warn!("the snapshots of a backup that was given up may still be there: {error}"),
    };
    if left.items.is_empty() {
        return;
    }
    let (opened_locations, records) = (
        SnapshotLocations::new(services, Arc::new(TracingLogSink)),
        Records::start(&services.leader, RecordKind::Backup),
    );
    for record in left.items.iter().map(|record| json!(record)) {
        if let Err(error) = discard_one(services, &opened_locations, &records, &record).await {
            warn!("record {}: {error}", text(&record, "/metadata/name"));
        }
    }
    opened_locations.close().await;
}

async fn discard_one(
    services: &SnapshotServices,
    opened_locations: &SnapshotLocations,
    records: &Records,
    record: &Value,
) -> Result<(), Error> {
    let notes = record.pointer("/metadata/annotations").cloned().unwrap_or_default();
    let location = notes.get(labels::SNAPSHOT_LOCATION).and_then(Value::as_str).unwrap_or_default();
    let (id, volume) = (text(record, "/status/snapshotID"), text(record, "/spec/volume"));
    let backup = text(record, "/spec/backup");
    let ended = !text(record, "/status/completionTimestamp").is_empty();
    let message = if !id.is_empty() {
        match delete(services, opened_locations, location, id).await? {
            Ok(()) => "its backup was given up: the snapshot is deleted".to_owned(),
            Err(why) => format!("its backup was given up, and snapshot {id} cannot be deleted: {why}"),
        }
    } else if ended || !is_kept(record) {
        return Ok(());
    } else {
        format!(
            "its backup was given up while the snapshot was asked for: one of volume {volume} may exist, with the tags \
             velero.io/backup={backup} and velero.io/pv={volume}"
        )
    };
    warn!("snapshot {id} of volume {volume}: {message}");
    let status = json!({ "phase": "Canceled", "message": message,
        "completionTimestamp": format!("{:.0}", jiff::Timestamp::now()) });
    records.patch(text(record, "/metadata/name"), &json!({ "status": status })).await.map(drop)
}
