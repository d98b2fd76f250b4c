//! One operation of this process.

use std::sync::Arc;

use plimsoll_engine::ports::{Journal, JournalEntry, LeadershipGuard};
use plimsoll_engine::{Error, OperationEnv, RetryPolicy};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Lifecycle, OperationRuntime};
use crate::history::HistoryRecord;
use crate::journal::ConfigMapJournal;
use crate::operation_record::OperationRecord;
use crate::subject::Subject;
use crate::subject_status::SubjectStatus;

/// One operation of this process.
pub struct Job<K: Lifecycle> {
    /// State that all operations share.
    pub runtime: Arc<OperationRuntime>,
    /// Services that the work needs.
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
    /// Journal entries of earlier attempts.
    pub journal_entries: Vec<JournalEntry>,
    /// Cancelled when the user cancels it.
    pub cancel: CancellationToken,
    /// The directory of its spools; removed with it.
    pub scratch: tempfile::TempDir,
    /// Its state in memory beside the tree.
    pub live: Arc<K::LiveState>,
    /// What earlier runs of the same showed.
    pub history: Arc<HistoryRecord>,
}

impl<K: Lifecycle> Job<K> {
    /// The path of the subject's custom resource.
    pub fn path(&self) -> String {
        self.id.path()
    }

    /// The environment for the engine.
    pub fn engine_env(&self) -> OperationEnv {
        OperationEnv {
            cluster: self.runtime.leader.cluster.clone(),
            guard: Arc::clone(&self.record) as Arc<dyn LeadershipGuard>,
            journal: Arc::clone(&self.journal) as Arc<dyn Journal>,
            cancel: self.cancel.clone(),
            scratch: self.scratch.path().to_owned(),
            root: self.tree.root(),
        }
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
}
