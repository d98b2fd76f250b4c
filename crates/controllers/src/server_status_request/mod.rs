//! ServerStatusRequest: which version answers, and what it can do.

mod plugins;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use plimsoll_api::velero::v1::{RequestPhase, ServerStatusRequest};
use plimsoll_engine::Error;
use plimsoll_operations::LeaderClient;
use plimsoll_operations::controller::{duration_until, run_controller, time_after};
use plimsoll_plugin::PluginRegistry;
use serde_json::json;

/// Retention of answered requests.
const RETENTION: Duration = Duration::from_mins(1);
/// The Velero version whose API this server implements: clients compare major and minor version.
const VELERO_VERSION: &str = "v1.18.3";

/// The reported server version.
pub fn server_version() -> String {
    format!("{VELERO_VERSION}-plimsoll.{}", env!("CARGO_PKG_VERSION"))
}

/// Context of the controller.
pub struct ServerStatusContext {
    pub leader: LeaderClient,
    pub plugins: PluginRegistry,
}

/// Runs the controller until the future is dropped.
pub async fn control(context: Arc<ServerStatusContext>) {
    run_controller::<ServerStatusRequest, _, _, _>(&context.leader, Arc::clone(&context), reconcile).await;
}

#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Answer,
    Keep(Duration),
    Delete,
}

fn decide(request: &ServerStatusRequest, now: Timestamp) -> Decision {
    let status = request.status.clone().unwrap_or_default();
    if status.phase != Some(RequestPhase::Processed) {
        return Decision::Answer;
    }
    let ends = time_after(status.processed_timestamp.map_or(Timestamp::MIN, |time| time.0), RETENTION);
    if ends <= now { Decision::Delete } else { Decision::Keep(duration_until(ends, now)) }
}

async fn reconcile(request: Arc<ServerStatusRequest>, context: Arc<ServerStatusContext>) -> Result<Action, Error> {
    let name = request.name_any();
    match decide(&request, Timestamp::now()) {
        Decision::Keep(time) => return Ok(Action::requeue(time + Duration::from_millis(100))),
        Decision::Answer => answer(&name, &context).await?,
        Decision::Delete => context.leader.delete::<ServerStatusRequest>(&name).await?,
    }
    Ok(Action::requeue(RETENTION))
}

async fn answer(name: &str, context: &ServerStatusContext) -> Result<(), Error> {
    context.leader.fence.check()?;
    let status = json!({
        "phase": RequestPhase::Processed.as_str(),
        "processedTimestamp": format!("{:.0}", Timestamp::now()),
        "serverVersion": server_version(),
        "plugins": plugins::installed(&context.plugins),
    });
    let patch = Patch::Merge(json!({ "status": status }));
    match context.leader.api::<ServerStatusRequest>().patch(name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Error::api(format!("answer server status request {name}"), error)),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use plimsoll_api::velero::v1::ServerStatusRequestStatus;

    use super::*;

    #[test]
    fn a_request_is_answered_once_and_deleted_a_minute_later() {
        let mut request = ServerStatusRequest::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(decide(&request, at(0)), Decision::Answer);
        request.status = Some(ServerStatusRequestStatus {
            phase: Some(RequestPhase::Processed),
            processed_timestamp: Some(Time(at(100))),
            ..ServerStatusRequestStatus::default()
        });
        assert_eq!(decide(&request, at(130)), Decision::Keep(Duration::from_secs(30)));
        assert_eq!(decide(&request, at(160)), Decision::Delete);
    }

    #[test]
    fn the_version_is_one_of_the_line_that_clients_expect() {
        assert!(server_version().starts_with("v1.18.3-plimsoll."));
    }
}
