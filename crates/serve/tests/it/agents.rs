//! What an agent knows reaches the leader before it is written anywhere.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use plimsoll_progress::{Clock, Operation, Total, Trees, Unit};
use plimsoll_serve::{Dashboard, Settings, Token};
use reqwest::{Client, StatusCode};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use crate::bed::{Bed, NAMESPACE, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_has_copies_of_the_agents_trees_while_it_works_and_nobody_else_gets_them() {
    let bed = Bed::new(false).await;
    let settings = Settings {
        address: ([127, 0, 0, 1], 0).into(),
        token: Token::random(),
        open_metrics: false,
        may_change: false,
        namespace: NAMESPACE.to_owned(),
        due: |_, _| None,
    };
    let theirs = Trees::default();
    let agent = Dashboard::new(bed.client.clone(), settings).with_trees(theirs.clone()).only_trees();
    let agent = agent.listen().await.unwrap();
    let ask = async |path: &str, token: &str| {
        let request = Client::new().get(format!("http://{}{path}", agent.address)).header("X-Plimsoll-Token", token);
        request.send().await.unwrap().status()
    };
    // The server has made no token yet: then nobody knows it.
    assert_eq!(ask("/api/trees", "anything").await, StatusCode::UNAUTHORIZED);
    let token = Token::of_server(&bed.client, NAMESPACE).await.unwrap();
    assert_eq!(ask("/api/trees", "anything").await, StatusCode::UNAUTHORIZED);
    for path in ["/api/overview", "/metrics", "/"] {
        assert_eq!(ask(path, token.reveal()).await, StatusCode::NOT_FOUND, "{path}");
    }
    let lease = json!({ "metadata": { "name": "plimsoll-agent-n",
            "annotations": { "plimsoll.dev/progress-address": agent.address.to_string() } },
        "spec": { "holderIdentity": "n" } });
    let leases: Api<Lease> = Api::namespaced(bed.client.clone(), NAMESPACE);
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();

    let (busy, copies) = (Trees::default(), Trees::default());
    let following =
        plimsoll_serve::follow_agents(bed.client.clone(), NAMESPACE.to_owned(), busy.clone(), copies.clone());
    let _following = AbortOnDropHandle::new(tokio::spawn(following));
    let transfer = Operation::new("transfer", Clock::system());
    let bytes = transfer.root().meter(Unit::Bytes);
    bytes.set_total(Total::Final(100));
    let observer = transfer.observer();
    let shown = theirs.show("uid", move || Some(observer.snapshot()));
    let work = busy.show("backup", || None);
    let done = || copies.snapshot("uid").and_then(|tree| Some(tree.root()?.counts(Unit::Bytes)?.done));
    eventually("the copy is here", async || done() == Some(0)).await;
    bytes.add(42);
    eventually("it moves", async || done() == Some(42)).await;
    drop(shown);
    eventually("what is gone there is gone here", async || copies.is_empty()).await;
    let observer = transfer.observer();
    let _shown = theirs.show("uid", move || Some(observer.snapshot()));
    eventually("it is back", async || done() == Some(42)).await;
    drop(work);
    eventually("nobody is followed for nothing", async || copies.is_empty()).await;
}
