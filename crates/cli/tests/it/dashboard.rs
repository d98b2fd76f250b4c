//! The dashboard and the metrics of a real server, and its memory as the command line reads it through the API server.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use http::Method;
use plimsoll_testkit::Proxy;
use plimsoll_testkit::peers::{PlimsollInPods, S3Server};
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::bed::{Bed, Home, eventually, phase, plimsoll};
use crate::top_terminal::Terminal;

/// The address of the dashboard in the log of a server.
pub async fn address(home: &Home<'_>) -> String {
    let find = |log: &str| {
        let rest = log.split("serving the dashboard and metrics on ").nth(1)?;
        rest.split(|c: char| c.is_whitespace() || c == '"' || c == '\u{1b}').next().map(str::to_owned)
    };
    eventually("the dashboard is served", async || find(&home.log()).is_some()).await;
    find(&home.log()).unwrap()
}

/// Starts `plimsoll ui`; returns its output, the address and the token.
async fn ui(mut command: Command) -> (Child, String, String, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.next_line().await.unwrap().unwrap();
    let url = lines.next_line().await.unwrap().unwrap();
    let (base, token) = url.split_once("/#token=").unwrap();
    (child, said, base.to_owned(), token.to_owned())
}

pub async fn overview(base: &str, token: &str) -> Value {
    let request = reqwest::Client::new().get(format!("{base}/api/overview")).header("X-Plimsoll-Token", token);
    let text = request.send().await.unwrap().text().await.unwrap();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
}

pub fn row<'o>(overview: &'o Value, name: &str) -> Option<&'o Value> {
    overview["news"]["rows"].as_array()?.iter().find(|row| row["name"] == name)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_reports_metrics_and_without_one_ui_observes_itself() {
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
    let answer = overview(&format!("http://{address}"), &token).await;
    assert_eq!(row(&answer, "b").unwrap()["percent"], "100.00 %", "{answer:#}");
    drop(server);

    let (_ui, said, base, token) = ui(home.command(&["ui", "--no-open"])).await;
    assert!(said.contains("read with this kubeconfig"), "{said}");
    let answer = overview(&base, &token).await;
    assert_eq!(row(&answer, "b").unwrap()["verdict"], "Fine", "{answer:#}");
    let refused = reqwest::get(format!("{base}/metrics")).await.unwrap().status();
    assert_eq!(refused, reqwest::StatusCode::UNAUTHORIZED);
}

mod real {
    use super::*;

    /// A server that soon retries requests that hang.
    const PODS: [&str; 2] = ["--use-node-agent=false", "--server-argument=--store-idle-timeout=2s"];

    /// What a command prints, line by line.
    struct EventOutput {
        child: Child,
        lines: Lines<BufReader<ChildStdout>>,
        received: Vec<Value>,
    }

    impl EventOutput {
        fn start(mut command: Command) -> Self {
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            Self { child, lines, received: Vec::new() }
        }

        /// Reads events until one matches.
        async fn until(&mut self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
            let listen = async {
                while let Some(line) = self.lines.next_line().await.unwrap() {
                    let event: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
                    self.received.push(event.clone());
                    if holds(&event) {
                        return Some(event);
                    }
                }
                None
            };
            let found = tokio::time::timeout(Duration::from_mins(4), listen).await;
            found.ok().flatten().unwrap_or_else(|| panic!("no event has {what}: {:#?}", self.received))
        }
    }

    /// The first event of a stream of the dashboard.
    async fn first_event(base: &str, token: &str, path: &str) -> String {
        let request = reqwest::Client::new().get(format!("{base}{path}")).header("X-Plimsoll-Token", token);
        let mut answer = request.send().await.unwrap();
        let mut text = String::new();
        while !text.contains("\n\n") {
            text += &String::from_utf8_lossy(&answer.chunk().await.unwrap().expect("the stream ended"));
        }
        text
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn progress_is_read_from_the_server_through_the_api_server_or_from_the_cluster() {
        let cluster = require!(plimsoll_testkit::cluster().await);
        let machine = require!(cluster.machine());
        require!(cache::program("versitygw"));
        require!(cache::system_program("tmux"));
        let host = machine.addresses().host();
        let bed = Bed::real(cluster).await;
        let store = S3Server::start(&host).unwrap();
        let bucket = store.create_bucket("seen").unwrap();
        let line = Proxy::for_server(&format!("{host}:0"), store.endpoint()).await.unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
        let ours = PlimsollInPods::install(cluster, program, &line.url(), "seen", &PODS).await.unwrap();
        let home = Home { bed: &bed, namespace: ours.namespace().to_owned(), bucket };
        let shop = bed.application("shop", 6).await;
        // Everything that people type goes over a line on which it can be seen, and cut.
        let api = Proxy::for_api_server(cluster).await.unwrap();
        let kubeconfig = api.kubeconfig().unwrap().to_owned();
        let command = |arguments: &[&str]| {
            let mut command = plimsoll();
            command.args(arguments).args(["--namespace", &home.namespace, "--kubeconfig"]).arg(&kubeconfig);
            command
        };
        let proxied = || Requests::all().containing("services/http:plimsoll:dashboard/proxy");
        let streams = || api.count_requests(&proxied().containing("/api/trees"));

        // --wait
        let held = line.inject(Requests::with_method(Method::PUT).containing("backups/b/"), Fault::Hang);
        let create: [&str; 8] = ["backup", "create", "b", "--include-namespaces", &shop, "--wait", "--events", "json"];
        let mut waiting = EventOutput::start(command(&create));
        let from_memory = |event: &Value| event["source"] == "server" && event["phase"] == "InProgress";
        let answer = waiting.until("what the server knows", from_memory).await;
        assert_eq!(answer["operation"], "backup-b", "{answer:#}");

        // watch
        let mut watching = EventOutput::start(command(&["watch", "backup/b", "--events", "json"]));
        watching.until("what the server knows", |event| event["source"] == "server").await;

        // top
        let known = streams();
        let top = format!("{} top --kubeconfig {} -n {}", program.display(), kubeconfig.display(), home.namespace);
        let terminal = Terminal::run("proxy", &top, (120, 30));
        terminal.wait_for("backup/b").await;
        eventually("top reads the server's stream", async || streams() > known).await;

        // ui: the page is local, its data is the server's.
        let (_ui, said, base, token) = ui(command(&["ui", "--no-open"])).await;
        assert!(said.contains("served by the Plimsoll server"), "{said}");
        let answer = overview(&base, &token).await;
        assert!(row(&answer, "b").is_some_and(|row| row["ended"].is_null()), "{answer:#}");
        let news = first_event(&base, &token, "/api/events").await;
        assert!(news.starts_with("event: news") && news.contains("backup/"), "{news}");
        assert!(api.count_requests(&proxied().containing("/api/events")) > 0);
        let (_direct, said, base_direct, token_direct) = ui(command(&["ui", "--no-open", "--direct"])).await;
        assert!(said.contains("read with this kubeconfig"), "{said}");
        assert!(row(&overview(&base_direct, &token_direct).await, "b").is_some());

        // The proxy and its connections are closed: all views fall back to the objects of the cluster.
        let refused = api.inject(proxied(), Fault::Status(503));
        api.close();
        waiting.until("what the cluster says", |event| event["source"] == "cluster").await;
        api.open();
        watching.until("what the cluster says", |event| event["source"] == "cluster").await;
        terminal.wait_for("backup/b").await;
        eventually("the open page is updated", async || {
            row(&overview(&base, &token).await, "b").is_some_and(|row| row["ended"].is_null())
        })
        .await;
        let (_alone, said, _, _) = ui(command(&["ui", "--no-open"])).await;
        assert!(said.contains("read with this kubeconfig"), "{said}");

        // And back.
        drop(refused);
        watching.until("what the server knows again", |event| event["source"] == "server").await;

        drop(held);
        let ended = waiting.until("the end", |event| event["exitCode"].is_number()).await;
        assert_eq!((&ended["phase"], &ended["exitCode"]), (&json!("Completed"), &json!(0)), "{}", ours.logs());
        assert!(waiting.child.wait().await.unwrap().success());
        assert!(watching.child.wait().await.unwrap().success());
        let kubectl = |line: &str| cluster.kubectl(line.split(' ').chain(["-n", home.namespace.as_str()])).unwrap();
        kubectl("wait --for=condition=Complete --timeout=180s backups.velero.io/b");
        kubectl("wait --for=condition=ProgressStalled=False --timeout=180s backups.velero.io/b");
        kubectl("wait --for=condition=Progressing=False --timeout=180s backups.velero.io/b");
        kubectl("wait --for=condition=Complete --timeout=180s operations.plimsoll.dev/backup-b");
        let shown = kubectl("get backups.velero.io b");
        assert!(shown.contains("PROGRESS") && shown.contains("100.00"), "{shown}");
        eventually("its Events are there", async || {
            let events = home.events("Backup", "b").await;
            ["Started", "Succeeded"].iter().all(|reason| events.contains(&(*reason).to_owned()))
        })
        .await;
        home.restore("r", json!({ "backupName": "b" })).await;
        kubectl("wait --for=condition=Complete --timeout=180s restores.velero.io/r");
        kubectl("wait --for=condition=Progressing=False --timeout=180s restores.velero.io/r");
        kubectl("wait --for=condition=Complete --timeout=180s operations.plimsoll.dev/restore-r");
        let restore = home.get("Restore", "r").await;
        assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", ours.logs());
        bed.clear().await;
    }
}
