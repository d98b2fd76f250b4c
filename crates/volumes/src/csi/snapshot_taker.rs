//! Creates a VolumeSnapshot and waits until the driver has taken it.

use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use plimsoll_api::labels;
use plimsoll_engine::item_operations::ItemOperationProgress;
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_operations::LeaderClient;
use plimsoll_progress::{Task, view};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::snapshot_state::{SnapshotDetails, SnapshotState, snapshot_state};
use super::{DELETION_POLICY, DRIVER_NAME, HANDLE, RESTORE_SIZE, VERSION, contents, snapshots, text};

/// How often a snapshot is read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A created snapshot.
#[derive(Clone, Debug)]
pub(super) struct CreatedSnapshot {
    pub namespace: String,
    pub name: String,
    pub class: String,
    pub taken: SnapshotDetails,
}

impl CreatedSnapshot {
    /// ID of its item operation.
    pub fn operation(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Takes the snapshot of a claim.
pub(super) struct SnapshotTaker<'a> {
    pub leader: &'a LeaderClient,
    pub backup: &'a str,
    pub uid: &'a str,
    /// Timeout of the driver.
    pub limit: Duration,
    pub task: &'a Task,
}

impl SnapshotTaker<'_> {
    /// The name of the snapshot of a claim. It is stable, so that a new leader finds it.
    pub fn name_for(&self, claim: &Value) -> String {
        let name = text(claim, "/metadata/name");
        let digest = Sha256::digest(format!("{}\0{}", self.uid, text(claim, "/metadata/uid")));
        format!("velero-{}-{}", &name[..name.floor_char_boundary(200)], hex::encode(&digest[..5]))
    }

    /// Creates the snapshot and waits until the driver has taken it.
    pub async fn take(&self, claim: &Value, class: &str) -> Result<CreatedSnapshot, Error> {
        let namespace = text(claim, "/metadata/namespace");
        let name = self.name_for(claim);
        self.create(claim, class, &name).await?;
        let taken = match self.wait(namespace, &name).await {
            Ok(taken) => taken,
            Err(error @ (Error::Fenced(_) | Error::Cancelled)) => return Err(error),
            Err(error) => {
                // Do not leave a failed snapshot behind.
                let _ = snapshots(&self.leader.client, namespace).delete(&name, &DeleteParams::default()).await;
                return Err(error);
            }
        };
        let created = CreatedSnapshot { namespace: namespace.to_owned(), name, class: class.to_owned(), taken };
        self.annotate(&created.namespace, &created.name, &created.taken).await?;
        Ok(created)
    }

    async fn create(&self, claim: &Value, class: &str, name: &str) -> Result<(), Error> {
        let (namespace, of) = (text(claim, "/metadata/namespace"), text(claim, "/metadata/name"));
        let object = json!({ "apiVersion": VERSION, "kind": "VolumeSnapshot",
            "metadata": { "name": name, "namespace": namespace, "labels": {
                labels::BACKUP_NAME: labels::valid_name(self.backup), labels::BACKUP_UID: self.uid } },
            "spec": { "source": { "persistentVolumeClaimName": of }, "volumeSnapshotClassName": class } });
        let object: DynamicObject = serde_json::from_value(object).map_err(|e| Error::InvalidResponse {
            what: format!("create VolumeSnapshot {name}"),
            detail: e.to_string(),
        })?;
        let api = snapshots(&self.leader.client, namespace);
        let create = || async {
            match api.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                answer => answer.map(drop).map_err(|e| Error::api(format!("create VolumeSnapshot {name}"), e)),
            }
        };
        self.leader.fence.check()?;
        kill::point("csi.create.before");
        RetryPolicy::default().run(self.task, create).await?;
        kill::point("csi.create.after");
        Ok(())
    }

    /// Waits until the driver has taken it. A permanent error ends the wait.
    async fn wait(&self, namespace: &str, name: &str) -> Result<SnapshotDetails, Error> {
        let failed = |reason: &'static str, message: String| Error::Volumes { reason, message, retryable: false };
        let deadline = Instant::now() + self.limit;
        let message = format!("waiting for the driver to take snapshot {namespace}/{name}");
        let mut waiting = None;
        loop {
            let last_error =
                match RetryPolicy::default().run(self.task, || read_state(&self.leader.client, namespace, name)).await?
                {
                    SnapshotState::Taken(taken) => {
                        self.show_size(&taken);
                        return Ok(taken);
                    }
                    SnapshotState::Failed(error) => return Err(failed("SnapshotFailed", error)),
                    SnapshotState::Pending(last_error) => last_error,
                };
            if let Some(last_error) = &last_error {
                self.task.hint(last_error);
            }
            if Instant::now() >= deadline {
                let error =
                    last_error.unwrap_or_else(|| "no error reported; is the snapshot-controller running?".into());
                let limit = self.limit.as_secs();
                return Err(failed("SnapshotTimedOut", format!("the driver has no snapshot after {limit} s: {error}")));
            }
            // A driver may take minutes and reports nothing: only its timeout is too long.
            waiting.get_or_insert_with(|| self.task.wait_quietly(&message, Some(self.limit)));
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// A snapshot moves no data: its size is a fact about it, and no progress.
    fn show_size(&self, taken: &SnapshotDetails) {
        if let Some(size) = size_text(taken) {
            self.task.say(size);
        }
    }

    /// Writes what a restore needs as annotations of the snapshot, because its status is not restored, and labels the content.
    async fn annotate(&self, namespace: &str, name: &str, taken: &SnapshotDetails) -> Result<(), Error> {
        let client = &self.leader.client;
        let notes =
            Patch::Merge(json!({ "metadata": { "annotations": { HANDLE: taken.handle, DRIVER_NAME: taken.driver,
            RESTORE_SIZE: taken.size.to_string(), DELETION_POLICY: taken.policy } } }));
        let key = Patch::Merge(json!({ "metadata": { "labels": {
            labels::BACKUP_NAME: labels::valid_name(self.backup), labels::BACKUP_UID: self.uid } } }));
        let write = || async {
            let written = snapshots(client, namespace).patch(name, &PatchParams::default(), &notes).await;
            written.map_err(|e| Error::api(format!("write VolumeSnapshot {name}"), e))?;
            let written = contents(client).patch(&taken.content, &PatchParams::default(), &key).await;
            written.map(drop).map_err(|e| Error::api(format!("write VolumeSnapshotContent {}", taken.content), e))
        };
        RetryPolicy::default().run(self.task, write).await
    }

    /// The progress of a snapshot, and its details once it is ready.
    pub async fn read(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<(ItemOperationProgress, Option<SnapshotDetails>), Error> {
        let (progress, taken) = to_progress(read_state(&self.leader.client, namespace, name).await?);
        if let Some(taken) = &taken {
            self.annotate(namespace, name, taken).await?;
        }
        Ok((progress, taken))
    }
}

/// Reads the state of a snapshot.
pub(super) async fn read_state(client: &Client, namespace: &str, name: &str) -> Result<SnapshotState, Error> {
    let found = snapshots(client, namespace).get_opt(name).await;
    let found = found.map_err(|e| Error::api(format!("read VolumeSnapshot {namespace}/{name}"), e))?;
    let Some(snapshot) = found.map(|found| json!(found)) else {
        return Ok(SnapshotState::Failed("it was deleted".into()));
    };
    let content = match text(&snapshot, "/status/boundVolumeSnapshotContentName") {
        "" => None,
        bound => {
            let found = contents(client).get_opt(bound).await;
            found.map_err(|e| Error::api(format!("read VolumeSnapshotContent {bound}"), e))?
        }
    };
    Ok(snapshot_state(&snapshot, content.map(|content| json!(content)).as_ref()))
}

/// The state as the progress of an item operation, and the details once the snapshot is ready.
pub(super) fn to_progress(state: SnapshotState) -> (ItemOperationProgress, Option<SnapshotDetails>) {
    let taken = match state {
        SnapshotState::Taken(taken) => taken,
        SnapshotState::Failed(error) => {
            return (ItemOperationProgress { completed: true, error, ..ItemOperationProgress::default() }, None);
        }
        SnapshotState::Pending(error) => SnapshotDetails { last_error: error, ..SnapshotDetails::default() },
    };
    let description = match (&taken.last_error, taken.ready) {
        (_, true) => {
            size_text(&taken).map_or_else(|| "ready to use".to_owned(), |size| format!("ready to use, {size}"))
        }
        (Some(last_error), false) => last_error.clone(),
        (None, false) => "not ready to use yet".to_owned(),
    };
    let completed = taken.ready;
    let progress = ItemOperationProgress { completed, description, ..ItemOperationProgress::default() };
    (progress, completed.then_some(taken))
}

/// The size of the volume that a restore of the snapshot creates, if the driver reports it.
fn size_text(taken: &SnapshotDetails) -> Option<String> {
    u64::try_from(taken.size).ok().filter(|size| *size > 0).map(view::size_text)
}
