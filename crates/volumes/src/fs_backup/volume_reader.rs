//! Reads the objects behind a pod volume: claim, PersistentVolume, node.

use plimsoll_engine::cluster::{Cluster, collection_path};
use plimsoll_engine::{Error, RetryPolicy};
use plimsoll_progress::Task;
use serde_json::Value;

use super::policy::claim_name;

/// Reads what a choice needs.
pub(crate) struct VolumeReader<'a> {
    pub cluster: &'a Cluster,
    pub task: &'a Task,
}

impl VolumeReader<'_> {
    async fn read(&self, plural: &str, namespace: Option<&str>, name: &str) -> Result<Option<Value>, Error> {
        let path = format!("{}/{name}", collection_path("v1", plural, namespace));
        let found = RetryPolicy::default().run(self.task, || self.cluster.get(&path)).await?;
        Ok(found.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// A claim.
    pub async fn claim(&self, namespace: &str, name: &str) -> Result<Option<Value>, Error> {
        self.read("persistentvolumeclaims", Some(namespace), name).await
    }

    /// The claim of a pod's volume, and the volume that it is bound to.
    pub async fn binding(&self, pod: &Value, volume: &Value) -> Result<(Option<Value>, Option<Value>), Error> {
        let namespace = pod.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        let Some(name) = claim_name(pod, volume) else { return Ok((None, None)) };
        let claim = self.claim(namespace, &name).await?;
        let persistent = match &claim {
            Some(claim) => self.volume_of(claim).await?,
            None => None,
        };
        Ok((claim, persistent))
    }

    /// The volume that a claim is bound to.
    pub async fn volume_of(&self, claim: &Value) -> Result<Option<Value>, Error> {
        match claim.pointer("/spec/volumeName").and_then(Value::as_str).filter(|name| !name.is_empty()) {
            Some(name) => self.read("persistentvolumes", None, name).await,
            None => Ok(None),
        }
    }

    /// Whether a node runs Windows.
    pub async fn runs_windows(&self, node: &str) -> Result<bool, Error> {
        let found = self.read("nodes", None, node).await?.unwrap_or_default();
        let labels = found.pointer("/metadata/labels");
        Ok(labels.and_then(|labels| labels.get("kubernetes.io/os")).is_some_and(|os| os == "windows"))
    }
}
