//! The leader reads the trees of an agent.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use plimsoll_local::fixtures::create_namespace;
use plimsoll_progress::Trees;
use plimsoll_progress_stream::{AccessToken, AgentDiscovery, AgentServer, follow_agents};
use reqwest::{Client, StatusCode};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use crate::{Transfer, bytes_done, eventually};

const NAMESPACE: &str = "velero";
const ADDRESS: &str = "plimsoll.dev/progress-address";

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_has_replicas_of_the_agents_trees_while_it_has_work_and_the_token_protects_them() {
    let directory = tempfile::tempdir().unwrap();
    let client = plimsoll_local::Api::open(directory.path()).await.unwrap().client(NAMESPACE);
    create_namespace(&client, NAMESPACE).await.unwrap();
    let trees = Trees::default();
    let agent = AgentServer::new(client.clone(), NAMESPACE, trees.clone());
    let agent = agent.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let ask = async |path: &str, token: &str| {
        let request = Client::new().get(format!("http://{}{path}", agent.address)).header("X-Plimsoll-Token", token);
        request.send().await.unwrap().status()
    };

    // Before the server has created its token no token is valid.
    assert_eq!(ask("/api/trees", "anything").await, StatusCode::UNAUTHORIZED);
    assert_eq!(ask("/healthz", "").await, StatusCode::OK);
    let token = AccessToken::read_or_create(&client, NAMESPACE).await.unwrap();
    assert_eq!(ask("/api/trees", "anything").await, StatusCode::UNAUTHORIZED);
    assert_eq!(ask("/api/trees", token.reveal()).await, StatusCode::OK);
    for path in ["/api/overview", "/metrics", "/"] {
        assert_eq!(ask(path, "").await, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(ask(path, token.reveal()).await, StatusCode::NOT_FOUND, "{path}");
    }

    let lease = json!({ "metadata": { "name": "plimsoll-agent-n", "annotations": { ADDRESS: agent.address.to_string() } },
        "spec": { "holderIdentity": "n" } });
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let (busy, replicas) = (Trees::default(), Trees::default());
    let agents = AgentDiscovery { client, namespace: NAMESPACE.to_owned(), address_annotation: ADDRESS };
    let _following = AbortOnDropHandle::new(tokio::spawn(follow_agents(agents, busy.clone(), replicas.clone())));
    let transfer = Transfer::new();
    let registration = transfer.register(&trees);
    let work = busy.register("backup", || None);
    eventually("the replica exists", || bytes_done(&replicas) == Some(0)).await;
    transfer.bytes.add(42);
    eventually("it follows", || bytes_done(&replicas) == Some(42)).await;
    drop(registration);
    eventually("a removed tree is removed", || replicas.is_empty()).await;
    let _registration = transfer.register(&trees);
    eventually("it is back", || bytes_done(&replicas) == Some(42)).await;
    drop(work);
    eventually("without work no agent is read", || replicas.is_empty()).await;
}
