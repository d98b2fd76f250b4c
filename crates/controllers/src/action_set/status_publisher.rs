//! The only writer of an ActionSet's status. A change of the board is written before the work continues; the rest every second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use plimsoll_blueprint::board::{Board, PhaseRef};
use plimsoll_blueprint::functions::Call;
use plimsoll_engine::cluster::Cluster;
use plimsoll_engine::log::{self, OperationLog};
use plimsoll_engine::ports::LeadershipGuard;
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_operations::{Job, OperationRecord, is_same_except_times, projection, summary_patch};
use plimsoll_progress::{Snapshot, Task};
use serde_json::{Value, json};
use tracing::debug;

use super::ActionSetController;
use super::progress_sampler::{Running, Sampler};

/// So much of the end of a set's log is kept with it.
const LOG_KEPT: u64 = 256 << 10;
/// Fields of `status.progress`: a merge patch leaves alone what it does not name.
const PROGRESS_FIELDS: [&str; 8] = [
    "runningPhase",
    "runningPhases",
    "percentCompleted",
    "sizeDownloadedB",
    "sizeUploadedB",
    "estimatedDownloadSizeB",
    "estimatedUploadSizeB",
    "lastTransitionTime",
];

/// Holds the board and writes it.
pub struct Publisher {
    board: Mutex<Board>,
    sampler: Sampler,
    log: OperationLog,
    cluster: Cluster,
    record: Arc<OperationRecord>,
    root: Task,
    path: String,
    /// What was written last; held while a write is under way, so that nothing older follows it.
    written: tokio::sync::Mutex<Value>,
}

impl Publisher {
    pub fn new(job: &Job<ActionSetController>, board: Board, log: OperationLog) -> Self {
        Self {
            board: Mutex::new(board),
            sampler: Sampler::default(),
            log,
            cluster: job.context.leader.cluster.clone(),
            record: Arc::clone(&job.record),
            root: job.tree.root(),
            path: job.path(),
            written: tokio::sync::Mutex::default(),
        }
    }

    /// The log of the set.
    pub fn log(&self) -> &OperationLog {
        &self.log
    }

    pub fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A function runs from now on, and is asked how far it is.
    pub fn watch(&self, place: PhaseRef, running: Running) {
        self.sampler.watch(place, running);
        self.sample(None);
    }

    /// The call of a phase that runs now.
    pub fn call_of(&self, place: PhaseRef) -> Option<Arc<Call>> {
        self.sampler.call_of(place)
    }

    /// It has ended.
    pub fn forget(&self, place: PhaseRef) {
        self.sample(None);
        self.sampler.forget(place);
    }

    fn sample(&self, tree: Option<&Snapshot>) {
        let samples = self.sampler.ask(tree);
        let mut board = self.board();
        for (place, sample) in samples {
            board.sample(place, sample, Timestamp::now());
        }
    }

    fn status(&self) -> Value {
        let status = self.board().status(Timestamp::now());
        let mut status = serde_json::to_value(status).unwrap_or_default();
        for field in PROGRESS_FIELDS {
            if status["progress"][field].is_null() {
                status["progress"][field] = Value::Null;
            }
        }
        status
    }

    /// The last status. `Err` is why it failed.
    pub fn end(&self, cancelled: bool) -> (Result<(), String>, Value) {
        let ended = self.board().end(cancelled);
        (ended, self.status())
    }

    /// Writes what has changed since the last write, if anything has. Best effort.
    pub async fn refresh(&self, tree: &Snapshot, more: Value) {
        let mut written = self.written.lock().await;
        self.sample(Some(tree));
        let status = merged(self.status(), more);
        if is_same_except_times(&status, &written) {
            return;
        }
        kill::point("status.progress.before");
        match self.cluster.merge(&self.path, patch(&status)).await {
            Ok(_) => *written = status,
            Err(error) => debug!("progress of {}: {error}", self.path),
        }
        kill::point("status.progress.after");
    }

    /// Writes the board as it is now, and waits for an API server that does not answer.
    pub async fn publish(&self, tree: &Snapshot) -> Result<(), Error> {
        let mut written = self.written.lock().await;
        self.record.check_effect()?;
        let summary = summary_patch(&projection::summary(tree, Timestamp::now()));
        let status = merged(self.status(), json!({ "plimsoll": summary }));
        let body = patch(&status);
        RetryPolicy::default().run(&self.root, || self.cluster.merge(&self.path, body.clone())).await?;
        *written = status;
        Ok(())
    }

    /// Keeps the end of the log beside the set. Best effort.
    pub async fn keep_log(&self, job: &Job<ActionSetController>) {
        let Some(tail) = log::tail(job.scratch.path(), LOG_KEPT) else { return };
        if self.record.check_effect().is_err() {
            return;
        }
        let name = format!("{}-log", job.id.operation_name());
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                owner_references: Some(vec![job.id.owner()]),
                ..ObjectMeta::default()
            },
            data: Some([("log".to_owned(), tail.text), ("offset".to_owned(), tail.offset.to_string())].into()),
            ..ConfigMap::default()
        };
        let api: Api<ConfigMap> = Api::namespaced(job.context.leader.client.clone(), &job.id.namespace);
        let answer = match api.create(&PostParams::default(), &map).await {
            // A server before this one had come that far.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                api.patch(&name, &PatchParams::default(), &Patch::Merge(&map)).await
            }
            answer => answer,
        };
        if let Err(error) = answer {
            debug!("log of {}: {error}", job.id.name);
        }
    }
}

fn patch(status: &Value) -> Vec<u8> {
    json!({ "status": status }).to_string().into_bytes()
}

/// One percent for both: the set's own rules, not those of the tree.
fn merged(mut status: Value, more: Value) -> Value {
    if let (Some(fields), Value::Object(more)) = (status.as_object_mut(), more) {
        fields.extend(more);
    }
    if status["plimsoll"].is_object() {
        status["plimsoll"]["percent"] = status["progress"]["percentCompleted"].clone();
    }
    status
}
