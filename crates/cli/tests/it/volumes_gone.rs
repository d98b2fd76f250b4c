//! Transfers that are deleted while the server does not watch: their backup still ends and reports it.

use std::time::Duration;

use http::Method;
use plimsoll_testkit::Proxy;
use plimsoll_testkit::proxy::{Fault, Requests};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::bed::{Bed, Home, eventually, is_ended, phase, within};
use crate::pod_volumes::{Application, path};

/// A server behind a proxy, whose nodes have no agents: transfers stay as they are.
fn server(home: &Home<'_>, proxy: &Proxy, more: &[&str]) -> Child {
    // It stays in office while it cannot be reached.
    let patient = ["--uploader-type", "built-in", "--agent-heartbeat-timeout", "10m", "--lease-duration", "2m"];
    let arguments = [&patient, more].concat();
    home.server_through(proxy.kubeconfig().unwrap(), &arguments, &[("PATH", path().as_str())])
}

/// The lists and watches of the home's transfers.
fn lists(home: &Home<'_>) -> Requests {
    Requests::with_method(Method::GET).containing(format!("/namespaces/{}/podvolumebackups?", home.namespace))
}

/// Begins a backup, and waits until both of its transfers are there.
async fn begin(home: &Home<'_>, application: &Application<'_>) {
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    eventually("both transfers are there", async || home.list("PodVolumeBackup").await.len() == 2).await;
}

/// Waits until the server has seen both of them.
async fn wait_until_observed(home: &Home<'_>) {
    eventually("the server has seen both transfers", async || {
        let operations = home.list("Operation").await;
        let shown = operations.iter().map(|operation| operation.data["status"].to_string()).collect::<String>();
        ["writer/data", "writer/scratch"].iter().all(|volume| shown.contains(volume))
            && shown.matches("no agent runs on node local").count() >= 2
    })
    .await;
}

async fn delete_transfers(home: &Home<'_>) {
    for one in home.list("PodVolumeBackup").await {
        home.delete("PodVolumeBackup", &one.metadata.name.unwrap()).await;
    }
}

/// Makes so many changes that earlier ones are no longer in the watch history.
async fn exceed_watch_history(home: &Home<'_>) {
    let map = |text: &str| json!({ "data": { "much": text.repeat(450_000) } });
    home.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "large" } })).await.unwrap();
    for number in 0..24 {
        home.patch("ConfigMap", "large", map(if number % 2 == 0 { "a " } else { "b " })).await;
    }
}

async fn assert_both_transfers_deleted(home: &Home<'_>) {
    // A server that could not watch for a while does not try again at once.
    let mut backup = Value::Null;
    within(Duration::from_mins(4), "the backup has ended", async || {
        backup = home.get("Backup", "b").await;
        is_ended(&backup)
    })
    .await;
    let errors = home.messages("b", "errors");
    assert_eq!(phase(&backup), "PartiallyFailed", "{errors}\n{}", home.log());
    for volume in ["data", "scratch"] {
        let line = format!("writer/{volume}: its PodVolumeBackup was deleted");
        assert!(errors.contains(&line), "{volume}: {errors}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_deleted_between_two_lists_is_reported_and_does_not_block_the_backup() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 10_000).await);
    let proxy = Proxy::for_kubeconfig("127.0.0.1:0", &bed.kubeconfig).await.unwrap();
    let _server = server(&home, &proxy, &[]);
    begin(&home, &application).await;
    wait_until_observed(&home).await;
    proxy.close();
    delete_transfers(&home).await;
    exceed_watch_history(&home).await;
    proxy.open();
    assert_both_transfers_deleted(&home).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_transfer_without_a_watch_event_does_not_block_the_backup() {
    let bed = Bed::local_with_pods().await;
    let application = Application::start(&bed, "shop", 10_000).await;
    // Seen once, and late by the time that it could not be read any more.
    let home = bed.home("seen").await;
    let proxy = Proxy::for_kubeconfig("127.0.0.1:0", &bed.kubeconfig).await.unwrap();
    let seen = server(&home, &proxy, &["--fs-backup-timeout", "20s"]);
    begin(&home, &application).await;
    wait_until_observed(&home).await;
    let unwatched = proxy.inject(lists(&home).containing("watch=true"), Fault::Status(500));
    proxy.close();
    delete_transfers(&home).await;
    proxy.open();
    eventually("the server tries to watch again", async || unwatched.hits() > 0).await;
    assert_both_transfers_deleted(&home).await;
    drop(seen);

    let home = bed.home("unseen").await;
    let proxy = Proxy::for_kubeconfig("127.0.0.1:0", &bed.kubeconfig).await.unwrap();
    let _unlisted = proxy.inject(lists(&home), Fault::Status(500));
    let _server = server(&home, &proxy, &[]);
    begin(&home, &application).await;
    delete_transfers(&home).await;
    assert_both_transfers_deleted(&home).await;
}
