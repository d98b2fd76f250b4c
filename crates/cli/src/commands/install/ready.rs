//! `plimsoll install --wait`: waits until the server and the node agents are ready.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use plimsoll_controllers::LEASE;
use plimsoll_progress::{Clock, Operation, view};

use super::objects::{AGENT_NAME, SERVER_NAME};
use crate::args::install::Install;
use crate::exit::Outcome;
use crate::output;
use crate::progress_display::ProgressDisplay;

/// How often the state is read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Waits until a server is leader and the node agents run.
pub async fn wait(client: &Client, namespace: &str, options: &Install) -> anyhow::Result<Outcome> {
    let operation = Operation::new("waiting", Clock::system());
    let root = operation.root();
    let last = std::sync::Mutex::new(String::new());
    let work = async {
        loop {
            let Some(missing) = missing(client, namespace, options.use_node_agent).await? else {
                return Ok::<(), kube::Error>(());
            };
            last.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone_from(&missing);
            let _waiting = root.wait(missing);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let done = ProgressDisplay::new().show_while(&operation, tokio::time::timeout(options.timeout, work)).await;
    if let Ok(done) = done {
        done?;
        output::line("the server is leader and the node agents run");
        return Ok(Outcome::Success);
    }
    let why = last.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    output::line(format!("not ready after {}: {why}", view::duration_text(options.timeout)));
    Ok(Outcome::Failed)
}

/// The workloads that are not ready yet.
async fn missing(client: &Client, namespace: &str, agents: bool) -> kube::Result<Option<String>> {
    if let Some(why) = pods(client, namespace, SERVER_NAME).await? {
        return Ok(Some(why));
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = deployments.get(SERVER_NAME).await?;
    let fresh =
        deployment.status.as_ref().is_some_and(|status| status.observed_generation >= deployment.metadata.generation);
    let (wanted, status) = (deployment.spec.replicas.unwrap_or(1), deployment.status.unwrap_or_default());
    if !fresh || status.updated_replicas.unwrap_or(0) < wanted || status.available_replicas.unwrap_or(0) < wanted {
        return Ok(Some(format!("waiting for {wanted} pods of deployment {SERVER_NAME} to run")));
    }
    if agents && let Some(why) = missing_agents(client, namespace).await? {
        return Ok(Some(why));
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let holder = leases.get_opt(LEASE).await?.and_then(|lease| lease.spec?.holder_identity);
    Ok(match holder {
        Some(_) => None,
        None => Some("waiting for a leader: next to a running Velero or Kanister the server only observes".into()),
    })
}

async fn missing_agents(client: &Client, namespace: &str) -> kube::Result<Option<String>> {
    if let Some(why) = pods(client, namespace, AGENT_NAME).await? {
        return Ok(Some(why));
    }
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    let set = sets.get(AGENT_NAME).await?;
    let generation = set.metadata.generation;
    let status = set.status.unwrap_or_default();
    let wanted = status.desired_number_scheduled;
    let there = status.number_ready.min(status.updated_number_scheduled.unwrap_or(0));
    let fresh = status.observed_generation >= generation;
    let why = || format!("waiting for node agents: {there} of {wanted} ready");
    Ok((!fresh || there < wanted).then(why))
}

/// Why a pod does not run, as the kubelet reports it.
async fn pods(client: &Client, namespace: &str, name: &str) -> kube::Result<Option<String>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let chosen = ListParams::default().labels(&format!("app.kubernetes.io/name={name}"));
    Ok(pods.list(&chosen).await?.items.iter().find_map(waiting_reason))
}

fn waiting_reason(pod: &Pod) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let waiting = statuses.iter().find_map(|status| status.state.as_ref()?.waiting.clone())?;
    let (reason, message) = (waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default());
    Some(format!("pod {} is waiting: {reason} {message}", pod.name_any()).trim_end().to_owned())
}
