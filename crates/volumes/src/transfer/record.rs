//! Writes to a transfer's custom resource.

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use plimsoll_engine::Error;
use plimsoll_engine::RetryPolicy;
use plimsoll_progress::Task;
use serde_json::{Value, json};

use super::Transfer;

/// Writes to one transfer.
#[derive(Clone)]
pub struct TransferRecord<T> {
    api: Api<T>,
    name: String,
    uid: String,
}

impl<T: Transfer> TransferRecord<T> {
    /// The record of a transfer.
    pub fn new(client: Client, namespace: &str, object: &T) -> Self {
        let (name, uid) = (object.name_any(), object.uid().unwrap_or_default());
        Self { api: Api::namespaced(client, namespace), name, uid }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Changes the transfer as it is now, unless it has ended or is gone: then nothing is returned.
    pub async fn change(&self, task: &Task, patch: impl Fn(&T) -> Value) -> Result<Option<T>, Error> {
        RetryPolicy::default().run(task, || self.try_change(&patch)).await
    }

    async fn try_change(&self, patch: &impl Fn(&T) -> Value) -> Result<Option<T>, Error> {
        let what = || format!("write {} {}", T::kind(&()), self.name);
        loop {
            let found = self.api.get_opt(&self.name).await.map_err(|e| Error::api(what(), e))?;
            let same = |object: &T| object.uid().as_deref() == Some(&self.uid) && !object.phase().is_ended();
            let Some(current) = found.filter(same) else { return Ok(None) };
            let mut patch = patch(&current);
            patch["metadata"]["resourceVersion"] = json!(current.resource_version());
            match self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(written) => return Ok(Some(written)),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(Error::api(what(), error)),
            }
        }
    }

    /// The current transfer, which may be newer than that of a watch; `None` if it has ended or is gone.
    pub async fn current(&self) -> Result<Option<T>, Error> {
        let found = self.api.get_opt(&self.name).await;
        let found = found.map_err(|e| Error::api(format!("read {} {}", T::kind(&()), self.name), e))?;
        Ok(found.filter(|object| object.uid().as_deref() == Some(&self.uid) && !object.phase().is_ended()))
    }

    /// Shows progress. Nothing waits for it, and one that does not arrive is followed by a newer one.
    pub async fn write_progress(&self, status: &Value) -> Result<(), Error> {
        let patch = Patch::Merge(json!({ "status": status }));
        let answer = self.api.patch(&self.name, &PatchParams::default(), &patch).await;
        answer.map(|_| ()).map_err(|e| Error::api(format!("show progress of {}", self.name), e))
    }
}
