//! The last write of a transfer.

use jiff::Timestamp;
use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_engine::{Error, kill};
use plimsoll_mover::Outcome;
use plimsoll_operations::EventType;
use plimsoll_progress::{Ending, Operation};
use plimsoll_volumes::transfer::{Transfer, TransferError, TransferRecord};
use serde_json::{Value, json};
use tracing::info;

use crate::services::AgentServices;
use crate::status_writer::{self, ProgressFloor};

/// Writes the end of a transfer. A transfer that has ended otherwise stays as it is.
pub(super) async fn end<T: Transfer>(
    services: &AgentServices,
    object: &T,
    record: &TransferRecord<T>,
    tree: &Operation,
    floor: ProgressFloor,
    answer: Result<Outcome, TransferError>,
) -> Result<(), Error> {
    let (status, words) = final_status::<T>(&answer);
    tree.end(match &answer {
        Ok(_) => Ending::Succeeded,
        Err(TransferError::Cancelled) => Ending::Cancelled("requested".into()),
        Err(error) => Ending::Failed(error.to_string()),
    });
    let ended = |_: &T| {
        let mut all = status_writer::status(&tree.snapshot(), &mut floor.clone(), None);
        // The written progress stays, unless the transfer succeeded: then its final status has both counts.
        all.as_object_mut().map(|all| all.remove("progress"));
        if let (Some(all), Some(last)) = (all.as_object_mut(), status.as_object()) {
            all.extend(last.clone());
        }
        json!({ "status": all })
    };
    kill::point("transfer.end.before");
    let written = record.change(&tree.root(), ended).await?;
    kill::point("transfer.end.after");
    if written.is_some() {
        info!("{} {}: {words}", T::kind(&()), record.name());
        let (event_type, reason) = match &answer {
            Ok(_) => (EventType::Normal, "Completed"),
            Err(error) => (EventType::Warning, error.reason()),
        };
        services.events.record(&object.object_ref(&()), event_type, reason, &words).await;
    }
    Ok(())
}

fn final_status<T: Transfer>(answer: &Result<Outcome, TransferError>) -> (Value, String) {
    let (phase, mut status, words) = match answer {
        Ok(outcome) => (TransferPhase::Completed, T::ended(outcome), "completed".to_owned()),
        Err(error @ TransferError::Cancelled) => {
            (TransferPhase::Canceled, json!({ "message": "cancelled" }), error.to_string())
        }
        Err(error) => (TransferPhase::Failed, json!({ "message": error.message() }), error.to_string()),
    };
    status["phase"] = json!(phase.as_str());
    status["completionTimestamp"] = json!(format!("{:.0}", Timestamp::now()));
    (status, words)
}
