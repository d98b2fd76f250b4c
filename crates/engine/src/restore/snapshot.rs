//! A PersistentVolume whose data is in a plugin's snapshot.

use std::time::Duration;

use plimsoll_progress::Task;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::run::{POLL, RestoreRun, failed};
use super::volumes::release_volume;
use crate::Error;
use crate::outcome::{ItemOutcome, ItemRef};

/// Annotation: what a volume was called in the backup.
const ORIGINAL_NAME: &str = "velero.io/original-pv-name";

/// What is there already under a volume's name.
enum There {
    Nothing,
    /// One that stays.
    Volume,
    /// One that does not go in time.
    Stuck(String),
}

impl RestoreRun {
    /// The volume to create: made from its snapshot, or the one that is still there. Nobody makes a volume that would belong
    /// to nobody.
    pub(super) async fn volume_from_snapshot(
        &self,
        mut object: Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<Result<Value, ItemOutcome>, Error> {
        let moves = self.moves_elsewhere(&object);
        let renamed = match (self.volume_there(&item.name, moves, task).await?, moves) {
            (There::Stuck(why), _) => return Ok(Err(failed("BeingDeleted", why))),
            (There::Nothing, _) => None,
            (There::Volume, false) => {
                release_volume(&mut object, &self.origin);
                return Ok(Ok(object));
            }
            (There::Volume, true) => Some(self.new_name(&item.name)),
        };
        let Some(snapshots) = &self.rules.snapshots else {
            let why = "its data is in a snapshot that the backup's list does not name, or no plugin here can read: \
                       see `plimsoll plugin get`; with `restorePVs: false` its claim gets an empty volume";
            return Ok(Err(failed("SnapshotNotRestorable", why.to_owned())));
        };
        release_volume(&mut object, &self.origin);
        let called = renamed.clone().unwrap_or_else(|| item.name.clone());
        let mut object = match snapshots.make(&object, &called, task).await? {
            Ok(made) => made,
            Err(why) => return Ok(Err(failed("SnapshotNotRestored", why))),
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

    /// Whether its claim goes to another namespace.
    fn moves_elsewhere(&self, volume: &Value) -> bool {
        let namespace = volume.pointer("/spec/claimRef/namespace").and_then(Value::as_str);
        namespace.is_some_and(|namespace| self.origin.target(namespace) != namespace)
    }

    /// The same for every attempt of this restore: a volume that an earlier one made is found again.
    fn new_name(&self, volume: &str) -> String {
        let uid = self.rules.restore.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let digest = <sha2::Sha256 as sha2::Digest>::digest(format!("{uid}\0{volume}"));
        format!("velero-clone-{}", hex::encode(&digest[..8]))
    }

    /// Looks whether the volume is there; one that is on its way out is waited for.
    async fn volume_there(&self, name: &str, moves: bool, task: &Task) -> Result<There, Error> {
        let path = format!("/api/v1/persistentvolumes/{name}");
        let (started, limit) = (Instant::now(), self.rules.limits.terminating);
        let mut waiting = None;
        loop {
            let Some(found) = self.send(task, || self.cluster.get(&path)).await? else { return Ok(There::Nothing) };
            let there: Value = serde_json::from_slice(&found).unwrap_or_default();
            let phase = there.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
            let deletes =
                there.pointer("/spec/persistentVolumeReclaimPolicy").and_then(Value::as_str) == Some("Delete");
            let leaving = there.pointer("/metadata/deletionTimestamp").is_some() || (phase == "Released" && deletes);
            if !leaving || moves {
                return Ok(There::Volume);
            }
            if started.elapsed() >= limit {
                return Ok(There::Stuck(format!("the volume of this name is still going after {limit:?}")));
            }
            waiting.get_or_insert_with(|| task.wait(format!("waiting for volume {name}, which is released, to go")));
            tokio::time::sleep(POLL.max(Duration::from_millis(1)).min(limit)).await;
        }
    }
}
