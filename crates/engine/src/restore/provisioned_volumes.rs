//! Volumes that were provisioned anew: reclaim policy and labels as in the backup.
//!
//! A provisioner takes the reclaim policy from the StorageClass. Without this, a volume with `Retain` would come back with `Delete`,
//! and the next deletion of its claim would delete the data.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use plimsoll_api::labels;
use plimsoll_archive::volume_info::PersistentVolumeInfo;
use plimsoll_progress::Task;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::api_requests::outcome_of;
use super::run::{POLL_INTERVAL, RestoreRun};
use crate::cluster::collection_path;
use crate::outcome::{ItemOutcome, Scope};
use crate::{Error, kill};

const CLAIMS: &str = "persistentvolumeclaims";
const CONCURRENT_CLAIMS: usize = 8;

/// A claim of the backup whose volume is provisioned anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProvisionedClaim {
    /// The namespace in the backup.
    pub(super) namespace: String,
    pub(super) name: String,
    /// What its volume had.
    pub(super) volume: PersistentVolumeInfo,
}

/// Whether the claim of a volume is bound.
enum Binding {
    /// To the volume with this name.
    Bound(String),
    /// No volume will be provisioned during the restore, for this reason.
    Unbound(String),
    /// The claim is not of this restore.
    Foreign,
    /// A volume is being provisioned.
    Pending,
}

impl RestoreRun {
    /// Sets the reclaim policy and the labels of every volume that was provisioned for a restored claim.
    ///
    /// # Cancel safety
    /// The next attempt sets what is not set.
    pub(super) async fn set_up_provisioned_volumes(&self, task: &Task) -> Result<(), Error> {
        let claims = self.rules.volumes.provisioned_claims().iter();
        let setups: Vec<_> = claims.map(|claim| self.set_up_volume(claim, task)).collect();
        stream::iter(setups).buffer_unordered(CONCURRENT_CLAIMS).try_collect().await
    }

    /// Sets up the volume of one claim. What the API server rejects is an error of the restore, not the end of it.
    async fn set_up_volume(&self, claim: &ProvisionedClaim, task: &Task) -> Result<(), Error> {
        if !self.is_restored(claim)? {
            return Ok(());
        }
        let Err(error) = self.wait_and_patch(claim, task).await else { return Ok(()) };
        if let ItemOutcome::Failed { message, .. } = outcome_of(error)? {
            self.recorder.error(&self.scope(claim), self.not_set_up(claim, &message));
        }
        Ok(())
    }

    fn is_restored(&self, claim: &ProvisionedClaim) -> Result<bool, Error> {
        let row = self.find(CLAIMS, Some(&claim.namespace), &claim.name)?;
        let result = row.and_then(|(row, _)| self.state.item_states.result(row));
        Ok(result.is_some_and(super::item_states::ItemResult::exists))
    }

    async fn wait_and_patch(&self, claim: &ProvisionedClaim, task: &Task) -> Result<(), Error> {
        match self.wait_until_bound(claim, task).await? {
            Binding::Bound(volume) => self.patch_volume(claim, &volume, task).await,
            Binding::Unbound(why) => {
                self.recorder.warn(&self.scope(claim), self.not_set_up(claim, &why));
                Ok(())
            }
            Binding::Foreign | Binding::Pending => Ok(()),
        }
    }

    /// Waits until a volume is provisioned for the claim.
    async fn wait_until_bound(&self, claim: &ProvisionedClaim, task: &Task) -> Result<Binding, Error> {
        let (limit, started) = (self.rules.timeouts.resource, Instant::now());
        let mut waiting = None;
        loop {
            match self.binding(claim, task).await? {
                Binding::Pending if started.elapsed() >= limit => return Ok(Binding::Unbound(not_bound_after(limit))),
                Binding::Pending => {}
                known => return Ok(known),
            }
            let target = self.origin.target(&claim.namespace);
            waiting.get_or_insert_with(|| task.wait(format!("waiting for a volume for claim {target}/{}", claim.name)));
            tokio::time::sleep(POLL_INTERVAL.min(limit)).await;
        }
    }

    async fn binding(&self, claim: &ProvisionedClaim, task: &Task) -> Result<Binding, Error> {
        let namespace = self.origin.target(&claim.namespace);
        let path = format!("{}/{}", collection_path("v1", CLAIMS, Some(namespace)), claim.name);
        let Some(live) = self.read_object(&path, task).await? else { return Ok(Binding::Foreign) };
        let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let restore = live.pointer("/metadata/labels").and_then(|all| all.get(labels::RESTORE_NAME));
        if restore.is_none_or(|name| *name != labels::valid_name(&self.origin.restore)) {
            return Ok(Binding::Foreign);
        }
        if text("/status/phase") == "Bound" {
            return Ok(Binding::Bound(text("/spec/volumeName").to_owned()));
        }
        let why = self.why_not_provisioned(text("/spec/storageClassName"), task).await?;
        Ok(why.map_or(Binding::Pending, Binding::Unbound))
    }

    /// Why no volume is provisioned during the restore for a pending claim of this StorageClass; `None` if one is.
    async fn why_not_provisioned(&self, class: &str, task: &Task) -> Result<Option<String>, Error> {
        if class.is_empty() {
            return Ok(Some("the claim has no StorageClass and is not bound".into()));
        }
        let path = format!("{}/{class}", collection_path("storage.k8s.io/v1", "storageclasses", None));
        let Some(found) = self.read_object(&path, task).await? else {
            return Ok(Some(format!("the claim is not bound, and its StorageClass {class} does not exist")));
        };
        let waits_for_pod = found["volumeBindingMode"] == "WaitForFirstConsumer";
        Ok(waits_for_pod.then(|| "the claim is not bound until a pod uses it".into()))
    }

    async fn patch_volume(&self, claim: &ProvisionedClaim, name: &str, task: &Task) -> Result<(), Error> {
        let path = format!("{}/{name}", collection_path("v1", "persistentvolumes", None));
        let Some(volume) = self.read_object(&path, task).await? else { return Ok(()) };
        let Some(patch) = settings_patch(&volume, &claim.volume) else { return Ok(()) };
        self.guard.check_effect()?;
        kill::point("restore.volume.settings.before");
        self.send(task, || self.cluster.merge(&path, patch.to_string().into_bytes())).await?;
        kill::point("restore.volume.settings.after");
        self.recorder.log().info(format!("PersistentVolume {name}: reclaim policy and labels set as in the backup"));
        Ok(())
    }

    async fn read_object(&self, path: &str, task: &Task) -> Result<Option<Value>, Error> {
        let found = self.send(task, || self.cluster.get(path)).await?;
        Ok(found.map(|bytes| serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    fn scope(&self, claim: &ProvisionedClaim) -> Scope {
        Scope::Namespace(self.origin.target(&claim.namespace).to_owned())
    }

    fn not_set_up(&self, claim: &ProvisionedClaim, why: &str) -> String {
        let (namespace, policy) = (self.origin.target(&claim.namespace), &claim.volume.reclaim_policy);
        format!(
            "the volume of claim {namespace}/{} does not get its reclaim policy {policy} and its labels: {why}",
            claim.name
        )
    }
}

fn not_bound_after(limit: Duration) -> String {
    format!("the claim is not bound after {limit:?}")
}

/// The patch that gives a volume the settings; `None` if it has them. Other labels stay.
fn settings_patch(volume: &Value, wanted: &PersistentVolumeInfo) -> Option<Value> {
    let has = |key: &str, value: &str| {
        volume.pointer("/metadata/labels").and_then(|all| all.get(key)?.as_str()) == Some(value)
    };
    let labels: Map<String, Value> = wanted
        .labels
        .iter()
        .filter(|(key, value)| !has(key, value))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let policy = volume.pointer("/spec/persistentVolumeReclaimPolicy").and_then(Value::as_str);
    let mut patch = Map::new();
    if !labels.is_empty() {
        patch.insert("metadata".into(), json!({ "labels": labels }));
    }
    if policy != Some(&wanted.reclaim_policy) {
        patch.insert("spec".into(), json!({ "persistentVolumeReclaimPolicy": wanted.reclaim_policy }));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn only_what_differs_is_patched() {
        let labels = BTreeMap::from([("tier".to_owned(), "gold".to_owned()), ("team".to_owned(), "shop".to_owned())]);
        let wanted = PersistentVolumeInfo { reclaim_policy: "Retain".into(), labels };
        let volume = |policy: &str, labels: Value| json!({"metadata": {"labels": labels}, "spec": {"persistentVolumeReclaimPolicy": policy}});
        assert_eq!(
            settings_patch(&volume("Retain", json!({"tier": "gold", "team": "shop", "zone": "a"})), &wanted),
            None
        );
        assert_eq!(
            settings_patch(&volume("Delete", json!({"tier": "gold"})), &wanted),
            Some(
                json!({"metadata": {"labels": {"team": "shop"}}, "spec": {"persistentVolumeReclaimPolicy": "Retain"}})
            )
        );
        assert_eq!(
            settings_patch(&json!({"spec": {}}), &wanted).unwrap()["metadata"]["labels"],
            json!({"tier": "gold", "team": "shop"})
        );
    }
}
