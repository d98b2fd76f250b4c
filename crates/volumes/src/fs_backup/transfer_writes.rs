//! What the leader writes into a transfer of an agent.

use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_progress::{Clock, Operation};
use serde_json::json;
use tracing::{debug, warn};

use super::obstacle::Obstacle;
use super::services::TransferServices;
use crate::transfer::{Transfer, TransferRecord};

/// Writes an obstacle into the status of its transfer, once, for readers of the status alone.
pub(super) async fn write_obstacle<T: Transfer>(services: &TransferServices, object: &T, obstacle: &Obstacle) {
    let is_reported = |object: &T| object.message().is_some_and(|message| message.starts_with(obstacle.reason));
    if is_reported(object) || services.leader.fence.check().is_err() {
        return;
    }
    let record = TransferRecord::new(services.leader.client.clone(), &services.leader.namespace, object);
    let operation = Operation::new(object.name_any(), Clock::system());
    let message = json!({ "status": { "message": obstacle.to_string() } });
    if let Err(error) = record.change(&operation.root(), |_| message.clone()).await {
        debug!("writing the obstacle of transfer {}: {error}", object.name_any());
    }
}

/// The result of failing a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailResult {
    /// The transfer failed, or the next poll tries again.
    Requested,
    /// It had ended before, or was deleted.
    TooLate,
}

/// Fails a transfer that its agent does not end. A running agent stops when it sees this.
pub(super) async fn fail_transfer<T: Transfer>(services: &TransferServices, object: &T, message: &str) -> FailResult {
    if services.leader.fence.check().is_err() {
        return FailResult::Requested;
    }
    let record = TransferRecord::new(services.leader.client.clone(), &services.leader.namespace, object);
    let operation = Operation::new(object.name_any(), Clock::system());
    let now = format!("{:.0}", Timestamp::now());
    let failed = |_: &T| {
        json!({ "spec": { "cancel": true },
            "status": { "phase": TransferPhase::Failed.as_str(), "message": message, "completionTimestamp": now } })
    };
    match record.change(&operation.root(), failed).await {
        Ok(Some(_)) => warn!("{} {}: {message}", T::kind(&()), object.name_any()),
        Ok(None) => return FailResult::TooLate,
        Err(error) => debug!("ending transfer {}: {error}", object.name_any()),
    }
    FailResult::Requested
}
