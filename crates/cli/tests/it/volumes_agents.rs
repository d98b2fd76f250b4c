//! Who moves the volumes of which pods: one agent at a time, and every claim by a pod that can bring it.

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use plimsoll_testkit::wait::WAIT_TIMEOUT;
use serde_json::json;

use crate::bed::{Bed, eventually, phase, terminate_server};
use crate::pod_volumes::{Application, agent, agent_log, server, transfer};

/// Starts what Velero calls its node agents, and waits until one of them is ready.
async fn start_node_agents(api: &Api<DaemonSet>) {
    let set = json!({ "metadata": { "name": "node-agent", "labels": { "component": "velero" } },
        "spec": { "selector": { "matchLabels": { "name": "node-agent" } }, "template": {
            "metadata": { "labels": { "name": "node-agent" } },
            "spec": { "containers": [{ "name": "node-agent", "image": "any", "command": ["sleep", "1000"] }] } } } });
    api.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    let is_ready = async || api.get("node-agent").await.unwrap().status.is_some_and(|status| status.number_ready > 0);
    eventually("a node agent is ready", is_ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_beside_veleros_node_agents_observes_and_works_once_they_are_gone() {
    let bed = Bed::local_with_pods().await;
    let (application, home) = (Application::start(&bed, "shop", 100_000).await, bed.home("home").await);
    let node_agents: Api<DaemonSet> = Api::namespaced(bed.client.clone(), &home.namespace);
    start_node_agents(&node_agents).await;
    let _server = server(&home, "built-in", &["--agent-heartbeat-timeout", "3s"]);
    let mut agent = agent(&home, &[], &[]);
    let words = "observing only: Velero (daemonset node-agent, which has a ready pod)";
    eventually("our agent says that it only looks on", async || agent_log(&home).contains(words)).await;
    let spec = json!({ "includedNamespaces": [application.namespace] });
    home.backup("beside", spec.clone()).await;
    home.ended("Backup", "beside").await;
    let errors = home.messages("beside", "errors");
    let words = "NodeAgentMissing: no Plimsoll agent runs on node local, only Velero (daemonset node-agent";
    assert!(errors.contains(words), "{errors}\n{}", agent_log(&home));
    assert!(!agent_log(&home).contains("at work"), "{}", agent_log(&home));

    node_agents.delete("node-agent", &DeleteParams::default()).await.unwrap();
    eventually("our agent goes to work", async || agent_log(&home).contains("at work")).await;
    home.backup("alone", spec).await;
    let backup = home.ended("Backup", "alone").await;
    assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages("alone", "errors"), agent_log(&home));

    start_node_agents(&node_agents).await;
    let ended = tokio::time::timeout(WAIT_TIMEOUT, agent.wait()).await.unwrap().unwrap();
    let words = "(daemonset node-agent, which has a ready pod) serves namespace home now";
    assert!(!ended.success() && agent_log(&home).contains(words), "{ended}: {}", agent_log(&home));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_shared_with_a_finished_pod_is_backed_up_through_the_running_pod() {
    let bed = Bed::local_with_pods().await;
    let (application, home) = (Application::start(&bed, "shop", 100_000).await, bed.home("home").await);
    // By its name it comes first.
    application.finished_pod("a-finished", "data").await;
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages("b", "errors"), agent_log(&home));
    let found = transfer(&home, "PodVolumeBackup", "data").await.expect("the claim is backed up");
    assert_eq!((&found["spec"]["pod"]["name"], phase(&found)), (&json!("writer"), "Completed"), "{found:#}");
    let warnings = home.messages("b", "warnings");
    assert!(!warnings.contains("not Running"), "everything it has is backed up: {warnings}");
    terminate_server(agent).await;
}
