//! PersistentVolumes with a snapshot of a volume snapshotter.

use std::time::Duration;

use plimsoll_progress::Task;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::backup_volumes::release_volume;
use super::run::{POLL_INTERVAL, RestoreRun, failed};
use crate::Error;
use crate::outcome::{ItemOutcome, ItemRef};

/// Annotation: name of the volume in the backup.
const ORIGINAL_NAME: &str = "velero.io/original-pv-name";

/// The existing volume of a name.
enum ExistingVolume {
    None,
    /// A volume that is not being deleted.
    Present,
    /// A volume whose deletion timed out.
    Terminating(String),
}

impl RestoreRun {
    /// The volume to create: from its snapshot, or the existing one. A volume is created only if it will be used.
    pub(super) async fn volume_from_snapshot(
        &self,
        mut object: Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<Result<Value, ItemOutcome>, Error> {
        let moves = self.changes_namespace(&object);
        let renamed = match (self.read_existing_volume(&item.name, moves, task).await?, moves) {
            (ExistingVolume::Terminating(error), _) => return Ok(Err(failed("BeingDeleted", error))),
            (ExistingVolume::None, _) => None,
            (ExistingVolume::Present, false) => {
                release_volume(&mut object, &self.origin);
                return Ok(Ok(object));
            }
            (ExistingVolume::Present, true) => Some(self.new_name(&item.name)),
        };
        let Some(snapshots) = &self.rules.snapshots else {
            let error = "no entry for its snapshot in the backup, or no plugin for it: see `plimsoll plugin get`; \
                       with `restorePVs: false` its claim gets an empty volume";
            return Ok(Err(failed("SnapshotNotRestorable", error.to_owned())));
        };
        release_volume(&mut object, &self.origin);
        let name = renamed.clone().unwrap_or_else(|| item.name.clone());
        let mut object = match snapshots.create_volume(&object, &name, task).await? {
            Ok(created) => created,
            Err(error) => return Ok(Err(failed("SnapshotNotRestored", error))),
        };
        if let Some(name) = renamed {
            if !object["metadata"]["annotations"].is_object() {
                object["metadata"]["annotations"] = json!({});
            }
            object["metadata"]["annotations"][ORIGINAL_NAME] = json!(item.name);
            object["metadata"]["name"] = json!(name);
            self.rules.volumes.rename(&item.name, &name);
        }
        Ok(Ok(object))
    }

    /// Whether its claim is restored to another namespace.
    fn changes_namespace(&self, volume: &Value) -> bool {
        let namespace = volume.pointer("/spec/claimRef/namespace").and_then(Value::as_str);
        namespace.is_some_and(|namespace| self.origin.target(namespace) != namespace)
    }

    /// Stable across attempts, so that a volume of an earlier attempt is found.
    fn new_name(&self, volume: &str) -> String {
        let uid = self.rules.restore.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let digest = <sha2::Sha256 as sha2::Digest>::digest(format!("{uid}\0{volume}"));
        format!("velero-clone-{}", hex::encode(&digest[..8]))
    }

    /// Reads the existing volume. Waits while it is being deleted.
    async fn read_existing_volume(&self, name: &str, moves: bool, task: &Task) -> Result<ExistingVolume, Error> {
        let path = format!("/api/v1/persistentvolumes/{name}");
        let (started, limit) = (Instant::now(), self.rules.timeouts.terminating);
        let mut waiting = None;
        loop {
            let Some(found) = self.send(task, || self.cluster.get(&path)).await? else {
                return Ok(ExistingVolume::None);
            };
            let existing: Value = serde_json::from_slice(&found).unwrap_or_default();
            let phase = existing.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
            let deletes =
                existing.pointer("/spec/persistentVolumeReclaimPolicy").and_then(Value::as_str) == Some("Delete");
            let terminating =
                existing.pointer("/metadata/deletionTimestamp").is_some() || (phase == "Released" && deletes);
            if !terminating || moves {
                return Ok(ExistingVolume::Present);
            }
            if started.elapsed() >= limit {
                return Ok(ExistingVolume::Terminating(format!(
                    "the existing volume is still being deleted after {limit:?}"
                )));
            }
            waiting.get_or_insert_with(|| task.wait(format!("waiting for the deletion of volume {name}")));
            tokio::time::sleep(POLL_INTERVAL.max(Duration::from_millis(1)).min(limit)).await;
        }
    }
}
