//! One snapshot: asked for, and waited for until the driver has it.

use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use plimsoll_api::labels;
use plimsoll_engine::item_operations::ItemOperationProgress;
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_operations::LeaderClient;
use plimsoll_progress::{Task, Total, Unit};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::state::{self, SnapshotDetails, State};
use super::{DELETION_POLICY, DRIVER_NAME, HANDLE, RESTORE_SIZE, VERSION, contents, snapshots, text};

/// How often a snapshot is looked at.
const EVERY: Duration = Duration::from_millis(500);

/// A snapshot that was made.
#[derive(Clone, Debug)]
pub(super) struct CreatedSnapshot {
    pub namespace: String,
    pub name: String,
    pub class: String,
    pub taken: SnapshotDetails,
}

impl CreatedSnapshot {
    /// What its operation is called.
    pub fn operation(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Takes one.
pub(super) struct SnapshotTaker<'a> {
    pub leader: &'a LeaderClient,
    pub backup: &'a str,
    pub uid: &'a str,
    /// How long a driver may take.
    pub limit: Duration,
    pub task: &'a Task,
}

impl SnapshotTaker<'_> {
    /// The name of the snapshot of a claim. The same name for the same work: a new leader finds it.
    pub fn name_for(&self, claim: &Value) -> String {
        let name = text(claim, "/metadata/name");
        let digest = Sha256::digest(format!("{}\0{}", self.uid, text(claim, "/metadata/uid")));
        format!("velero-{}-{}", &name[..name.floor_char_boundary(200)], hex::encode(&digest[..5]))
    }

    /// Asks for the snapshot and waits until the driver has it.
    pub async fn take(&self, claim: &Value, class: &str) -> Result<CreatedSnapshot, Error> {
        let namespace = text(claim, "/metadata/namespace");
        let name = self.name_for(claim);
        self.create(claim, class, &name).await?;
        let taken = match self.wait(namespace, &name).await {
            Ok(taken) => taken,
            Err(error @ (Error::Fenced(_) | Error::Cancelled)) => return Err(error),
            Err(error) => {
                // What will never be must not stay behind.
                let _ = snapshots(&self.leader.client, namespace).delete(&name, &DeleteParams::default()).await;
                return Err(error);
            }
        };
        let made = CreatedSnapshot { namespace: namespace.to_owned(), name, class: class.to_owned(), taken };
        self.annotate(&made.namespace, &made.name, &made.taken).await?;
        Ok(made)
    }

    async fn create(&self, claim: &Value, class: &str, name: &str) -> Result<(), Error> {
        let (namespace, of) = (text(claim, "/metadata/namespace"), text(claim, "/metadata/name"));
        let object = json!({ "apiVersion": VERSION, "kind": "VolumeSnapshot",
            "metadata": { "name": name, "namespace": namespace, "labels": {
                labels::BACKUP_NAME: labels::valid_name(self.backup), labels::BACKUP_UID: self.uid } },
            "spec": { "source": { "persistentVolumeClaimName": of }, "volumeSnapshotClassName": class } });
        let object: DynamicObject = serde_json::from_value(object).map_err(|e| Error::InvalidResponse {
            what: format!("make VolumeSnapshot {name}"),
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

    /// Waits until the driver has it. What it says is wrong for good ends that at once.
    async fn wait(&self, namespace: &str, name: &str) -> Result<SnapshotDetails, Error> {
        let failed = |reason: &'static str, message: String| Error::Volumes { reason, message, retryable: false };
        let deadline = Instant::now() + self.limit;
        let words = format!("waiting for the driver to take snapshot {namespace}/{name}");
        let mut waiting = None;
        loop {
            let trouble =
                match RetryPolicy::default().run(self.task, || look(&self.leader.client, namespace, name)).await? {
                    State::Taken(taken) => {
                        self.show(&taken);
                        return Ok(taken);
                    }
                    State::Failed(why) => return Err(failed("SnapshotFailed", why)),
                    State::Pending(trouble) => trouble,
                };
            if let Some(trouble) = &trouble {
                self.task.hint(trouble);
            }
            if Instant::now() >= deadline {
                let why = trouble.unwrap_or_else(|| "no error reported; is the snapshot-controller running?".into());
                let limit = self.limit.as_secs();
                return Err(failed("SnapshotTimedOut", format!("the driver has no snapshot after {limit} s: {why}")));
            }
            waiting.get_or_insert_with(|| self.task.wait(&words));
            tokio::time::sleep(EVERY).await;
        }
    }

    fn show(&self, taken: &SnapshotDetails) {
        let size = u64::try_from(taken.size).unwrap_or(0);
        let bytes = self.task.meter(Unit::Bytes);
        bytes.set_total(Total::Final(size));
        bytes.set_done(size);
    }

    /// What a restore needs stands on the snapshot itself: its status does not come back. The content says whose it is.
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

    /// How far the driver is with a snapshot; once it is ready, what is known of it.
    pub async fn read(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<(ItemOperationProgress, Option<SnapshotDetails>), Error> {
        let (reading, taken) = reading(look(&self.leader.client, namespace, name).await?);
        if let Some(taken) = &taken {
            self.annotate(namespace, name, taken).await?;
        }
        Ok((reading, taken))
    }
}

/// Where a snapshot stands.
pub(super) async fn look(client: &Client, namespace: &str, name: &str) -> Result<State, Error> {
    let found = snapshots(client, namespace).get_opt(name).await;
    let found = found.map_err(|e| Error::api(format!("read VolumeSnapshot {namespace}/{name}"), e))?;
    let Some(snapshot) = found.map(|found| json!(found)) else { return Ok(State::Failed("it is gone".into())) };
    let content = match text(&snapshot, "/status/boundVolumeSnapshotContentName") {
        "" => None,
        bound => {
            let found = contents(client).get_opt(bound).await;
            found.map_err(|e| Error::api(format!("read VolumeSnapshotContent {bound}"), e))?
        }
    };
    Ok(state::of(&snapshot, content.map(|content| json!(content)).as_ref()))
}

/// The same, as an operation shows it; once the snapshot is ready, what is known of it.
pub(super) fn reading(state: State) -> (ItemOperationProgress, Option<SnapshotDetails>) {
    let taken = match state {
        State::Taken(taken) => taken,
        State::Failed(error) => {
            return (ItemOperationProgress { completed: true, error, ..ItemOperationProgress::default() }, None);
        }
        State::Pending(why) => SnapshotDetails { trouble: why, ..SnapshotDetails::default() },
    };
    let size = u64::try_from(taken.size).unwrap_or(0);
    let description = match (&taken.trouble, taken.ready) {
        (_, true) => "ready to use".to_owned(),
        (Some(trouble), false) => trouble.clone(),
        (None, false) => "being made ready to use".to_owned(),
    };
    let (completed, done) = (taken.ready, if taken.ready { size } else { 0 });
    let reading = ItemOperationProgress {
        completed,
        done,
        total: size,
        units: "Bytes".into(),
        description,
        ..ItemOperationProgress::default()
    };
    (reading, completed.then_some(taken))
}
