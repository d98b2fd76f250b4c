//! One transfer from the moment a node takes it up to its end.
//!
//! ```text
//!  run ─▶ attempt ─▶ prepare ─▶ mover ─▶ release (a restore: the pod starts) ─▶ end
//!            ▲                    │
//!            └── pause ◀── retryable error
//! ```

mod attempt;
mod attempt_count;
mod end;
mod prepare;
mod release;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::{Api, ResourceExt};
use plimsoll_api::labels;
use plimsoll_engine::{Error, RetryPolicy};
use plimsoll_mover::{MoverKind, Outcome};
use plimsoll_progress::{Clock, Graft, Operation, Task};
use plimsoll_volumes::transfer::{Transfer, TransferError, TransferRecord};
use tokio_util::sync::CancellationToken;

pub(crate) use self::attempt_count::failed_attempts;
use self::end::end;
use self::prepare::mover_kind;
use crate::restore_marker;
use crate::services::AgentServices;
use crate::status_writer::{ProgressFloor, StatusWriter, StatusWriterSettings, resumed_tree};

/// How often a pod or a directory that is waited for is read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Works on a transfer to its end. An error means that the end could not be written.
pub(crate) async fn run<T: Transfer>(
    services: Arc<AgentServices>,
    object: T,
    cancel: CancellationToken,
) -> Result<(), Error> {
    let record = TransferRecord::new(services.client.clone(), &services.settings.namespace, &object);
    let reading = Operation::new(object.name_any(), Clock::system());
    let (retry, root) = (RetryPolicy::default(), reading.root());
    let current = tokio::select! {
        current = retry.run(&root, || record.current()) => current?,
        () = cancel.cancelled() => Some(object),
    };
    let Some(object) = current else { return Ok(()) };
    let tree = resumed_tree(&object, mover_kind(&object).ok().map(MoverKind::name));
    let status_writer_task = StatusWriter::start(StatusWriterSettings {
        record: record.clone(),
        tree: tree.observer(),
        floor: ProgressFloor::of(&object),
        expected: object.expected_bytes(),
        running: services.running.clone(),
        gone: cancel.clone(),
    });
    let observer = tree.observer();
    let uid = object.uid().unwrap_or_default();
    let _shown = services.settings.trees.register(&uid, move || Some(observer.snapshot()));
    let mover = OnceLock::new();
    let root = tree.root();
    let run = Run { services: &services, object: &object, record: &record, root, cancel: &cancel, mover };
    let answer = run.work().await;
    let floor = status_writer_task.stop().await;
    end(&services, &object, &record, &tree, floor, answer).await
}

/// Ends a transfer that does not run.
pub(crate) async fn end_before_start<T: Transfer>(
    services: &AgentServices,
    object: &T,
    error: TransferError,
) -> Result<(), Error> {
    let tree = Operation::new(object.name_any(), Clock::system());
    let record = TransferRecord::new(services.client.clone(), &services.settings.namespace, object);
    end(services, object, &record, &tree, ProgressFloor::of(object), Err(error)).await
}

struct Run<'a, T> {
    services: &'a AgentServices,
    object: &'a T,
    record: &'a TransferRecord<T>,
    root: Task,
    cancel: &'a CancellationToken,
    /// Where the mover's tree is shown, whichever attempt it is.
    mover: OnceLock<Graft>,
}

impl<T: Transfer> Run<'_, T> {
    async fn work(&self) -> Result<Outcome, TransferError> {
        if let Some(text) = self.object.annotations().get(labels::DATA_MOVEMENT_RESULT) {
            return self.resume_release(restore_marker::parse_outcome(text)).await;
        }
        let outcome = self.move_until_done().await?;
        // Waiting for a pod takes no slot, and nothing is moved again whatever happens.
        if self.object.waiting_restore()?.is_some() {
            self.wait_until_marker_seen().await?;
        }
        Ok(outcome)
    }

    async fn unless_cancelled<R>(&self, work: impl Future<Output = R>) -> Result<R, TransferError> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(TransferError::Cancelled),
            answer = work => Ok(answer),
        }
    }

    /// The pod, as it is now.
    async fn pod(&self) -> Result<Pod, TransferError> {
        let reference = self.object.pod();
        let path = path_of(&reference);
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.services.client.clone(), namespace);
        let name = reference.name.clone().unwrap_or_default();
        let read = || async { pods.get_opt(&name).await.map_err(|e| Error::api(format!("read pod {path}"), e)) };
        let pod = RetryPolicy::default().run(&self.root, read).await?;
        let same = |pod: &Pod| reference.uid.is_none() || pod.uid() == reference.uid;
        pod.filter(same).ok_or(TransferError::PodGone { pod: path.clone() })
    }

    /// Retries errors of the API server, and no others.
    async fn retry_api_errors<R, F>(&self, mut call: impl FnMut() -> F) -> Result<R, TransferError>
    where
        F: Future<Output = Result<R, TransferError>>,
    {
        let attempt = || {
            let answer = call();
            async {
                match answer.await {
                    Err(TransferError::Api(error)) => Err(error),
                    answer => Ok(answer),
                }
            }
        };
        RetryPolicy::default().run(&self.root, attempt).await?
    }
}

fn path_of(pod: &ObjectReference) -> String {
    format!("{}/{}", pod.namespace.as_deref().unwrap_or_default(), pod.name.as_deref().unwrap_or_default())
}
