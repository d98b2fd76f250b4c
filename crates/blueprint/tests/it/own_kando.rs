//! Where our `kando` cannot be put into a pod, the pod runs with that of its image, and the log says why.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use plimsoll_blueprint::params::Params;
use plimsoll_local::fixtures::eventually;
use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, TOOLS_IMAGE};

fn task() -> Value {
    json!({ "image": "any", "command": ["true"] })
}

async fn pods(bed: &Bed) -> Vec<Pod> {
    let api: Api<Pod> = Api::namespaced(bed.client.clone(), NAMESPACE);
    api.list(&ListParams::default()).await.unwrap().items
}

fn has_tools(pod: &Pod) -> bool {
    let inits = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    inits.into_iter().any(|init| init.image.as_deref() == Some(TOOLS_IMAGE.0))
}

/// Writes the status of a pod, as a kubelet does.
async fn report(bed: &Bed, pod: &Pod, status: Value) {
    let api: Api<Pod> = Api::namespaced(bed.client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({ "status": status }));
    api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.unwrap();
}

fn init(state: Value) -> Value {
    json!({ "phase": "Pending", "initContainerStatuses": [
        { "name": "plimsoll-tools", "state": state, "image": "", "imageID": "", "ready": false, "restartCount": 0 }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_init_container_cannot_start_runs_without_it_and_says_so() {
    let bed = Bed::without_node().await;
    let call = bed.call("KubeTask", task(), Params::default());
    let kubelet = async {
        let first = eventually("the pod", async || pods(&bed).await.into_iter().find(has_tools)).await;
        let refused =
            json!({ "waiting": { "reason": "CreateContainerConfigError", "message": "image will run as root" } });
        report(&bed, &first, init(refused)).await;
        let second =
            eventually("the pod without it", async || pods(&bed).await.into_iter().find(|pod| !has_tools(pod)));
        let second = second.await;
        assert_ne!(second.name_any(), first.name_any());
        assert!(pods(&bed).await.iter().all(|pod| !has_tools(pod)), "the first one is deleted before");
        report(&bed, &second, json!({ "phase": "Succeeded" })).await;
    };
    let (outputs, ()) = tokio::join!(call.run(), kubelet);
    outputs.unwrap();
    let expected = "plimsoll's kando cannot be installed in the pod, its image's own is used: CreateContainerConfigError: image will run as root";
    assert!(call.host.log_text().contains(expected), "{}", call.host.log_text());
    assert!(pods(&bed).await.is_empty(), "nothing is left");

    // A server that takes over goes on without it, and deletes what an earlier one left.
    let again = bed.call_with("KubeTask", task(), Params::default(), Arc::clone(&call.host));
    let leftover = json!({ "metadata": { "name": "leftover", "labels": { "plimsoll.dev/phase": again.call.identity } },
        "spec": { "containers": [{ "name": "c", "image": "any" }] } });
    bed.create("v1", "Pod", "pods", leftover).await;
    let error = again.run().await.unwrap_err().to_string();
    assert!(error.contains("no longer exists"), "its command is not run twice: {error}");
    assert!(pods(&bed).await.is_empty(), "nothing is left");
    bed.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_init_container_works_keeps_it() {
    let bed = Bed::without_node().await;
    let call = bed.call("KubeTask", task(), Params::default());
    let kubelet = async {
        let pod = eventually("the pod", async || pods(&bed).await.into_iter().next()).await;
        assert!(has_tools(&pod));
        report(&bed, &pod, init(json!({ "terminated": { "exitCode": 0 } }))).await;
        report(&bed, &pod, json!({ "phase": "Succeeded" })).await;
    };
    let (outputs, ()) = tokio::join!(call.run(), kubelet);
    outputs.unwrap();
    assert!(!call.host.log_text().contains("kando"), "{}", call.host.log_text());
    bed.shut_down().await;
}
