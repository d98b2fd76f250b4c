//! The dashboard and the metrics of a real server, and its memory as the command line reads it through the API server.

use std::process::Stdio;

use http::Method;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::Api;
use kube::api::PostParams;
use plimsoll_progress::Trees;
use plimsoll_testkit::Proxy;
use plimsoll_testkit::peers::{S3Program, S3Server};
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::bed::{Bed, Home, eventually, phase};

/// Where a server of this home says that it serves its dashboard.
async fn address(home: &Home<'_>) -> String {
    let find = |log: &str| {
        let rest = log.split("serving the dashboard and metrics on ").nth(1)?;
        rest.split(|c: char| c.is_whitespace() || c == '"' || c == '\u{1b}').next().map(str::to_owned)
    };
    eventually("the dashboard is served", async || find(&home.log()).is_some()).await;
    find(&home.log()).unwrap()
}

/// Starts `plimsoll ui`; returns what it says, the address and the token.
async fn ui(home: &Home<'_>, arguments: &[&str]) -> (Child, String, String, String) {
    let mut command = home.command(&[&["ui", "--no-open"], arguments].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.next_line().await.unwrap().unwrap();
    let url = lines.next_line().await.unwrap().unwrap();
    let (base, token) = url.split_once("/#token=").unwrap();
    (child, said, base.to_owned(), token.to_owned())
}

async fn overview(base: &str, token: &str) -> Value {
    let request = reqwest::Client::new().get(format!("{base}/api/overview")).header("X-Plimsoll-Token", token);
    let text = request.send().await.unwrap().text().await.unwrap();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
}

fn row<'o>(overview: &'o Value, name: &str) -> Option<&'o Value> {
    overview["news"]["rows"].as_array()?.iter().find(|row| row["name"] == name)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_tells_its_numbers_and_without_one_ui_looks_on_itself() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let shop = bed.application("shop", 20).await;
    let server = home.server_through(&bed.kubeconfig, &["--dashboard-address", "127.0.0.1:0"], &[]);
    let address = address(&home).await;
    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}", home.log());
    let metrics = async || reqwest::get(format!("http://{address}/metrics")).await.unwrap().text().await.unwrap();
    eventually("the backup is counted", async || {
        metrics().await.contains("velero_backup_success_total{schedule=\"\"} 1")
    })
    .await;
    let token = home.get("Secret", "plimsoll-dashboard").await;
    let token = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, token["data"]["token"].as_str().unwrap());
    let token = String::from_utf8(token.unwrap()).unwrap();
    let told = overview(&format!("http://{address}"), &token).await;
    assert_eq!(row(&told, "b").unwrap()["percent"], "100.00 %", "{told:#}");
    drop(server);

    let (_ui, said, base, token) = ui(&home, &[]).await;
    assert!(said.contains("as this kubeconfig sees it"), "{said}");
    let told = overview(&base, &token).await;
    assert_eq!(row(&told, "b").unwrap()["verdict"], "Fine", "{told:#}");
    let refused = reqwest::get(format!("{base}/metrics")).await.unwrap().status();
    assert_eq!(refused, reqwest::StatusCode::UNAUTHORIZED);
}

/// A Service that leads to a process of this machine.
async fn lead_to(bed: &Bed, namespace: &str, address: &str) {
    let (ip, port) = address.rsplit_once(':').unwrap();
    let port: u16 = port.parse().unwrap();
    let metadata = json!({ "name": "plimsoll" });
    let service = json!({ "metadata": metadata, "spec": { "ports": [{ "name": "dashboard", "port": port }] } });
    let services: Api<Service> = Api::namespaced(bed.client.clone(), namespace);
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let endpoints = json!({ "metadata": metadata,
        "subsets": [{ "addresses": [{ "ip": ip }], "ports": [{ "name": "dashboard", "port": port }] }] });
    let all: Api<Endpoints> = Api::namespaced(bed.client.clone(), namespace);
    all.create(&PostParams::default(), &serde_json::from_value(endpoints).unwrap()).await.unwrap();
}

mod real {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "held back until it has passed once: the API server leads only to addresses of pods"]
    async fn the_servers_memory_is_read_through_the_api_server_and_kubectl_can_wait() {
        let cluster = require!(plimsoll_testkit::cluster().await);
        let machine = require!(cluster.machine());
        require!(cache::program("s3s-fs"));
        let host = machine.addresses().host();
        let bed = Bed::real(cluster).await;
        let store = S3Server::start(S3Program::S3sFs, "127.0.0.1").unwrap();
        let proxy = Proxy::before("127.0.0.1:0", store.endpoint()).await.unwrap();
        let home = bed.home_on_s3("home", &store, &proxy.url()).await;
        let shop = bed.application("shop", 6).await;
        let _server = home.server_through(&bed.kubeconfig, &["--dashboard-address", &format!("{host}:0")], &[]);
        lead_to(&bed, &home.namespace, &address(&home).await).await;
        let held = proxy.inject(Requests::with_method(Method::PUT).containing("backups/b/"), Fault::Hang);
        home.backup("b", json!({ "includedNamespaces": [shop] })).await;
        eventually("it runs", async || phase(&home.get("Backup", "b").await) == "InProgress").await;
        let backup = home.get("Backup", "b").await;
        let uid = backup["metadata"]["uid"].as_str().unwrap();

        let trees = Trees::default();
        let following = plimsoll_serve::follow_leader(bed.client.clone(), home.namespace.clone(), None, trees.clone());
        let _following = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(following));
        eventually("its tree is here", async || trees.snapshot(uid).is_some_and(|tree| tree.nodes.len() > 1)).await;

        let (_ui, said, base, token) = ui(&home, &[]).await;
        assert!(said.contains("through the API server"), "{said}");
        let told = overview(&base, &token).await;
        assert!(row(&told, "b").is_some_and(|row| row["ended"].is_null()), "{told:#}");
        let (_ui, said, base, token) = ui(&home, &["--direct"]).await;
        assert!(said.contains("as this kubeconfig sees it"), "{said}");
        assert!(row(&overview(&base, &token).await, "b").is_some());

        drop(held);
        let kubectl = |line: &str| cluster.kubectl(line.split(' ').chain(["-n", home.namespace.as_str()])).unwrap();
        kubectl("wait --for=condition=Complete --timeout=120s backups.velero.io/b");
        kubectl("wait --for=condition=Stalled=False --timeout=10s backups.velero.io/b");
        kubectl("wait --for=condition=Complete --timeout=30s operations.plimsoll.dev/backup-b");
        let shown = kubectl("get backups.velero.io b");
        assert!(shown.contains("PROGRESS") && shown.contains("100.00"), "{shown}");
        eventually("the tree is gone", async || trees.snapshot(uid).is_none()).await;
        let events = home.events("Backup", "b").await;
        assert!(["Started", "Succeeded"].iter().all(|reason| events.contains(&(*reason).to_owned())), "{events:?}");
        bed.clear().await;
    }
}
