//! One operation of this process.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_engine::ports::LeadershipGuard;
use plimsoll_engine::{Error, RetryPolicy};
use plimsoll_progress::Task;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Lifecycle, OperationRuntime};
use crate::journal::{ConfigMapJournal, JournalEntry};
use crate::operation_record::{OperationRecord, Subject};
use crate::subject_status::SubjectStatus;

/// The stages of an operation, planned from the start: what has not started counts in the percentage too.
pub struct Stages(Vec<(&'static str, Task)>);

impl Stages {
    /// A stage that the caller starts.
    pub fn planned(&self, name: &str) -> Task {
        let task = self.0.iter().find(|(known, _)| *known == name).map(|(_, task)| task.clone());
        task.expect("a stage is requested by a name of the list it was planned from")
    }

    /// Starts a stage.
    pub fn start(&self, name: &str) -> Task {
        let task = self.planned(name);
        task.start();
        task
    }
}

/// One operation of this process.
pub struct Job<K: Lifecycle> {
    /// What all operations share.
    pub runtime: Arc<OperationRuntime>,
    /// What the work needs of the process.
    pub context: Arc<K::Context>,
    /// The subject as it was when the operation started here.
    pub subject: K::Resource,
    /// Its identity.
    pub id: Subject,
    /// Its progress.
    pub tree: plimsoll_progress::Operation,
    /// Its Operation.
    pub record: Arc<OperationRecord>,
    /// The writer of the subject's status.
    pub(crate) status: Arc<SubjectStatus>,
    /// Its journal.
    pub journal: Arc<ConfigMapJournal>,
    /// What earlier attempts wrote into the journal.
    pub journal_entries: Vec<JournalEntry>,
    /// Cancelled when the user cancels it.
    pub cancel: CancellationToken,
    /// Where its spools go; removed with it.
    pub scratch: tempfile::TempDir,
    /// What it keeps in memory beside the tree.
    pub live: Arc<K::LiveState>,
}

impl<K: Lifecycle> Job<K> {
    /// The path of the subject's custom resource.
    pub fn path(&self) -> String {
        self.id.path()
    }

    /// Plans the stages, each with its expected duration: its weight.
    pub fn plan_stages(&self, stages: &[(&'static str, Duration)]) -> Stages {
        let root = self.tree.root();
        let plan = |(name, expected): &(&'static str, Duration)| {
            let task = root.planned(name);
            task.expect_duration(*expected);
            (*name, task)
        };
        Stages(stages.iter().map(plan).collect())
    }

    /// Reads objects of the cluster, and retries while the API server does not answer.
    pub async fn read<T, F>(&self, attempt: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        RetryPolicy::default().run(&self.tree.root(), attempt).await
    }

    /// Writes the status as it is now, before the work continues.
    pub async fn publish_status(&self) -> Result<(), Error> {
        self.status.publish(&self.tree).await
    }

    /// Changes the subject by a merge patch, and retries while the API server does not answer. Returns the subject.
    pub async fn patch_subject(&self, patch: &Value) -> Result<Value, Error> {
        self.record.check_effect()?;
        let (path, body, root) = (self.path(), patch.to_string().into_bytes(), self.tree.root());
        let merge = || self.runtime.leader.cluster.merge(&path, body.clone());
        let written = RetryPolicy::default().run(&root, merge).await?;
        serde_json::from_slice(&written).map_err(|e| Error::InvalidResponse {
            what: format!("write {} {}", self.id.verb, self.id.name),
            detail: e.to_string(),
        })
    }

    /// Fails with `Cancelled` as soon as the user cancels, otherwise does the work.
    pub async fn unless_cancelled<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Error::Cancelled),
            answer = work => answer,
        }
    }
}
