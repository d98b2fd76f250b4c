//! Work of the leader on an object without a lifecycle of its own, such as the maintenance of a repository. It has an Operation, which
//! shows its progress and cancels it, and no journal: after the end of its leader it is begun again.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::plimsoll::v1alpha1::OperationState;
use plimsoll_engine::Error;
use plimsoll_progress::{Clock, Ending, Operation, Task};
use tokio_util::sync::CancellationToken;

use crate::lifecycle::OperationRuntime;
use crate::operation_record::{self, OperationRecord};
use crate::status_writer::{StatusWriter, StatusWriterSettings};
use crate::subject::Subject;

/// How often the Operation is asked whether a user has cancelled it.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Does work on a subject and records it in an Operation. A record of earlier work on the subject that has ended is replaced. The work
/// should end soon after the token is cancelled.
pub async fn run_recorded<T, F>(
    runtime: &OperationRuntime,
    subject: Subject,
    work: impl FnOnce(Task, CancellationToken) -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let leader = &runtime.leader;
    let opened = operation_record::open_anew(leader.client.clone(), &subject, leader.holder()).await?;
    let (record, cancel) = (Arc::new(opened.record), CancellationToken::new());
    if opened.cancelled {
        cancel.cancel();
    }
    let tree = Operation::new(record.name(), Clock::system());
    let status_writer = StatusWriter::start(StatusWriterSettings {
        tree: tree.observer(),
        status: None,
        record: Arc::clone(&record),
        subject,
        scratch: None,
        events: leader.events.clone(),
        write_budget: runtime.write_budget.clone(),
    });
    let result = tokio::select! {
        result = work(tree.root(), cancel.clone()) => result,
        never = cancel_on_request(&record, &cancel) => match never {},
    };
    status_writer.stop().await;
    end(&tree, &record, &result).await;
    result
}

/// Cancels the work when a user has set `spec.cancel`. Never returns.
async fn cancel_on_request(record: &OperationRecord, cancel: &CancellationToken) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(CANCEL_POLL_INTERVAL).await;
        if !cancel.is_cancelled() && record.is_cancelled().await {
            cancel.cancel();
        }
    }
}

/// Ends the tree and the record. The subject has the result itself, so a failed write is only logged.
async fn end<T>(tree: &Operation, record: &OperationRecord, result: &Result<T, Error>) {
    let (state, ending) = match result {
        Ok(_) => (OperationState::Succeeded, Ending::Succeeded),
        // A later leader does the work.
        Err(Error::Fenced(_)) => return,
        Err(Error::Cancelled) => (OperationState::Cancelled, Ending::Cancelled("requested by the user".into())),
        Err(error) => (OperationState::Failed, Ending::Failed(error.to_string())),
    };
    tree.end(ending);
    if let Err(error) = record.end(&tree.snapshot(), &state, Vec::new()).await {
        tracing::warn!("record of {}: {error}", record.name());
    }
}
