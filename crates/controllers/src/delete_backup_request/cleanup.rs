//! DeleteBackupRequests that have been carried out: kept for a day if something went wrong, otherwise not at all.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use plimsoll_api::velero::v1::{DeleteBackupRequest, DeleteBackupRequestPhase};
use plimsoll_engine::Error;
use plimsoll_operations::OperationRuntime;
use plimsoll_operations::controller::{duration_until, run_controller, time_after};

/// Retention of failed requests.
const FAILED_REQUEST_RETENTION: Duration = Duration::from_hours(24);

/// Runs the controller until the future is dropped.
pub async fn control(runtime: Arc<OperationRuntime>) {
    run_controller::<DeleteBackupRequest, _, _, _>(&runtime.leader, Arc::clone(&runtime), reconcile).await;
}

#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Leave,
    Keep(Duration),
    Delete,
}

fn decide(request: &DeleteBackupRequest, running: bool, now: Timestamp) -> Decision {
    let status = request.status.clone().unwrap_or_default();
    if status.phase != Some(DeleteBackupRequestPhase::Processed) {
        return Decision::Leave;
    }
    // Its record is being closed: it goes once that is done.
    if running {
        return Decision::Keep(Duration::from_millis(200));
    }
    let ends = time_after(request.creation_timestamp().map_or(Timestamp::MIN, |time| time.0), FAILED_REQUEST_RETENTION);
    if status.errors.is_empty() || ends <= now { Decision::Delete } else { Decision::Keep(duration_until(ends, now)) }
}

async fn reconcile(request: Arc<DeleteBackupRequest>, runtime: Arc<OperationRuntime>) -> Result<Action, Error> {
    let running = runtime.active.contains(&request.uid().unwrap_or_default());
    match decide(&request, running, Timestamp::now()) {
        Decision::Leave => Ok(Action::await_change()),
        Decision::Keep(time) => Ok(Action::requeue(time)),
        Decision::Delete => {
            runtime.leader.delete::<DeleteBackupRequest>(&request.name_any()).await?;
            Ok(Action::await_change())
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use plimsoll_api::velero::v1::DeleteBackupRequestStatus;

    use super::*;

    #[test]
    fn a_request_that_failed_is_kept_for_a_day_and_one_that_did_not_is_not_kept() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let request = |phase, errors: &[&str]| {
            let mut request = DeleteBackupRequest::default();
            request.metadata.creation_timestamp = Some(Time(at(0)));
            request.status = Some(DeleteBackupRequestStatus {
                phase: Some(phase),
                errors: errors.iter().map(|&e| e.to_owned()).collect(),
                ..DeleteBackupRequestStatus::default()
            });
            request
        };
        let day = 24 * 3600;
        let (done, failed) =
            (request(DeleteBackupRequestPhase::Processed, &[]), request(DeleteBackupRequestPhase::Processed, &["no"]));
        assert_eq!(decide(&done, false, at(1)), Decision::Delete);
        assert_eq!(decide(&done, true, at(1)), Decision::Keep(Duration::from_millis(200)));
        assert_eq!(decide(&failed, false, at(1)), Decision::Keep(Duration::from_secs(24 * 3600 - 1)));
        assert_eq!(decide(&failed, false, at(day)), Decision::Delete);
        assert_eq!(decide(&request(DeleteBackupRequestPhase::InProgress, &[]), false, at(day)), Decision::Leave);
    }
}
