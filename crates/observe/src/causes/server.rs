//! Problems of the server.

use plimsoll_progress::view::duration_text;

use super::{Cause, Certainty, pod};
use crate::cluster_state::ClusterState;
use crate::evidence::{Heartbeat, ServerProduct, has_operations, heartbeat, server_deployment, server_product};
use crate::kind::Kind;
use crate::object::{Object, time};

/// The defects of the server that serves this object.
pub(super) fn causes(object: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let mut found: Vec<Cause> = restarted(object, cluster).into_iter().collect();
    match heartbeat(cluster) {
        Heartbeat::Alive => {}
        Heartbeat::Silent { since, how } => found.push(
            silent(cluster).with_context(format!("no heartbeat of the server for {}: {how}", duration_text(since))),
        ),
        Heartbeat::Unknown => found.extend(down(cluster)),
    }
    found
}

/// The pods of the server.
fn pods(cluster: &ClusterState) -> impl Iterator<Item = &Object> {
    let server_product = server_product(cluster);
    let here = cluster.all(Kind::Pod).iter().filter(|pod| pod.namespace() == cluster.namespace);
    here.filter(move |pod| server_product.runs(pod))
}

fn list_command(cluster: &ClusterState) -> String {
    format!("kubectl -n {} get deployments,pods", cluster.namespace)
}

/// `deployment/velero`, as `kubectl` expects it.
fn deployment_argument(cluster: &ClusterState) -> String {
    let found = server_deployment(cluster).map(|(_, deployment)| deployment.name());
    format!("deployment/{}", found.unwrap_or_else(|| server_product(cluster).deployment()))
}

/// The command that shows the server's log.
pub(super) fn logs_command(cluster: &ClusterState) -> String {
    format!("kubectl -n {} logs {}", cluster.namespace, deployment_argument(cluster))
}

/// No heartbeat for too long; its Deployment may show why.
fn silent(cluster: &ClusterState) -> Cause {
    down(cluster).unwrap_or_else(|| {
        let text = "the server runs but sends no heartbeat: it hangs, has no network, or has no CPU";
        let after = match server_product(cluster) {
            ServerProduct::Velero => "Velero marks what is running as Failed",
            ServerProduct::Plimsoll => "what is running is resumed",
        };
        Cause::new("ServerSilent", Certainty::Likely, text)
            .with_command(format!("{} --tail 50", logs_command(cluster)))
            .with_command(format!(
                "kubectl -n {} rollout restart {}  # {after}",
                cluster.namespace,
                deployment_argument(cluster)
            ))
    })
}

/// No server of either product runs in the namespace, as far as can be read.
pub fn server_missing(cluster: &ClusterState) -> Option<Cause> {
    let absent = cluster.was_read(Kind::Deployment) && server_deployment(cluster).is_none();
    (absent && heartbeat(cluster) != Heartbeat::Alive).then(|| missing(cluster))
}

/// Which product was meant is known only if ours has run here before.
fn missing(cluster: &ClusterState) -> Cause {
    let namespace = &cluster.namespace;
    let cause = |who: &str| {
        let text = format!("{who} in namespace {namespace}: no controller processes the requests in it");
        Cause::new("ServerMissing", Certainty::Likely, text)
    };
    if has_operations(cluster) {
        return cause("there is no Plimsoll server").with_command(list_command(cluster));
    }
    cause("neither Plimsoll nor Velero has a ready server")
        .with_command(
            "kubectl get deployments -A | grep -E 'plimsoll|velero'  # if it is elsewhere: plimsoll -n NAMESPACE",
        )
        .with_command(format!("plimsoll -n {namespace} install --help  # if there is none yet"))
}

fn down(cluster: &ClusterState) -> Option<Cause> {
    let namespace = &cluster.namespace;
    if !cluster.was_read(Kind::Deployment) {
        return None;
    }
    let Some((_, deployment)) = server_deployment(cluster) else { return Some(missing(cluster)) };
    let ready = deployment.number("/status/readyReplicas").unwrap_or(0);
    if deployment.number("/spec/replicas") == Some(0) {
        let text = format!("the server is scaled to 0: deployment {namespace}/{}", deployment.name());
        let up = format!("kubectl -n {namespace} scale deployment/{} --replicas 1", deployment.name());
        return Some(Cause::new("ServerStopped", Certainty::Certain, text).with_command(up));
    }
    if ready > 0 {
        return None;
    }
    let problem = pods(cluster).find_map(|server| pod::find_problem(server, cluster));
    let text = format!("the server is not ready: deployment {namespace}/{}", deployment.name());
    Some(match problem {
        Some(problem) => Cause { reason: "ServerNotReady", text: format!("{text}; {}", problem.text), ..problem },
        None => Cause::new("ServerNotReady", Certainty::Certain, text).with_command(list_command(cluster)),
    })
}

/// A Velero that restarts marks what was running as failed. Ours resumes it, so a restart alone explains nothing unless it repeats.
fn restarted(object: &Object, cluster: &ClusterState) -> Option<Cause> {
    let since = object.time("/status/startTimestamp")?;
    let ends = pods(cluster).flat_map(|pod| pod.list("/status/containerStatuses").iter().map(move |it| (pod, it)));
    let (pod, end) = ends
        .map(|(pod, status)| (pod, &status["lastState"]["terminated"]))
        .find(|(_, end)| end.get("finishedAt").and_then(time).is_some_and(|at| at > since))?;
    let reason = end["reason"].as_str().unwrap_or("Error");
    let ago = end.get("finishedAt").and_then(time).map(|at| duration_text(cluster.age(at))).unwrap_or_default();
    let name = if reason == "OOMKilled" { "ServerOutOfMemory" } else { "ServerRestarted" };
    let (certainty, fate) = match server_product(cluster) {
        ServerProduct::Velero => (Certainty::Certain, "what was running is lost"),
        ServerProduct::Plimsoll => (Certainty::Possible, "it resumes what was running"),
    };
    let text = format!("the server ended {ago} ago ({reason}) and restarted: {fate}");
    let cause = Cause::new(name, certainty, text).with_evidence(format!("{} has restarted", pod::display_name(pod)));
    let memory =
        format!("kubectl -n {} set resources {} --limits memory=2Gi", cluster.namespace, deployment_argument(cluster));
    Some(cause.with_command(if reason == "OOMKilled" {
        memory
    } else {
        format!("{} --tail 50 --previous", logs_command(cluster))
    }))
}
