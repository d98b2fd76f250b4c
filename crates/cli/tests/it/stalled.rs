//! A stalled transfer is reported in every output with its cause, and so is its recovery.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::bed::{Bed, Home, condition_status, eventually, phase, terminate_server};
use crate::dashboard::{address, overview, row};
use crate::pod_volumes::{Application, agent, agent_log, server, transfer};
use crate::volumes_killed::movers_of;

/// So much that it is on its way for a while.
const BYTES: usize = 192 << 20;
const CAUSE: &str = "stopped by a signal";

/// Processes that do nothing until this is dropped.
struct StoppedMovers(Vec<Pid>);

impl StoppedMovers {
    fn movers_of(agent: &Child) -> Self {
        let all = movers_of(agent).into_iter().filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        Self(all.filter(|pid| kill_process(*pid, Signal::STOP).is_ok()).collect())
    }
}

impl Drop for StoppedMovers {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill_process(*pid, Signal::CONT);
        }
    }
}

async fn has_event(home: &Home<'_>, reason: &str) -> bool {
    home.events("Backup", "b").await.iter().any(|event| event == reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_transfer_and_its_recovery_are_reported_everywhere_with_the_cause() {
    let bed = Bed::local_with_pods().await;
    let application = Application::start(&bed, "shop", BYTES).await;
    let home = bed.home("home").await;
    let _server = server(&home, "built-in", &["--dashboard-address", "127.0.0.1:0"]);
    let agent = agent(&home, &["--progress-address", "127.0.0.1:0"], &[]);
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    eventually("the volume is on its way", async || {
        let found = transfer(&home, "PodVolumeBackup", "data").await.unwrap_or_default();
        phase(&found) == "InProgress" && !movers_of(&agent).is_empty()
    })
    .await;
    let stopped = StoppedMovers::movers_of(&agent);
    assert!(!stopped.0.is_empty(), "it had ended before: {}", agent_log(&home));

    let mut backup = Value::Null;
    eventually("the backup names it", async || {
        backup = home.get("Backup", "b").await;
        backup.pointer("/status/plimsoll/stalled/message").is_some_and(Value::is_string)
    })
    .await;
    let message = backup["status"]["plimsoll"]["stalled"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(CAUSE), "{message}\n{}", agent_log(&home));
    assert_eq!(
        (condition_status(&backup, "ProgressStalled"), condition_status(&backup, "Progressing")),
        (Some(true), Some(false)),
        "{backup:#}"
    );
    // The agent streams its progress to the server and writes the object by itself, in no particular order.
    eventually("the PodVolumeBackup names it", async || {
        let found = transfer(&home, "PodVolumeBackup", "data").await.unwrap_or_default();
        let own = found.pointer("/status/plimsoll/stalled/message").and_then(Value::as_str);
        own.is_some_and(|message| message.contains(CAUSE))
    })
    .await;
    eventually("the Operation says so", async || {
        condition_status(&home.get("Operation", "backup-b").await, "ProgressStalled") == Some(true)
    })
    .await;
    eventually("an Event says so", async || has_event(&home, "Stalled").await).await;
    let why = home.command(&["why", "backup/b", "-o", "json"]).output().await.unwrap();
    let text = String::from_utf8_lossy(&why.stdout);
    assert_eq!(why.status.code(), Some(7), "{text}");
    assert!(text.contains(CAUSE), "{text}");
    let top = home.command(&["top", "-o", "json"]).output().await.unwrap();
    let listed: Value = serde_json::from_slice(&top.stdout).unwrap();
    assert_eq!(listed["operations"][0]["verdict"], "Stuck", "{listed:#}");
    let token = home.get("Secret", "plimsoll-dashboard").await;
    let token = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, token["data"]["token"].as_str().unwrap());
    let (base, token) = (format!("http://{}", address(&home).await), String::from_utf8(token.unwrap()).unwrap());
    let told_there = overview(&base, &token).await;
    assert_eq!(row(&told_there, "b").unwrap()["verdict"], "Stuck", "{told_there:#}");
    let volumes = told_there["news"]["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["isStuck"] == json!(true)), "{told_there:#}");
    let metrics = reqwest::get(format!("{base}/metrics")).await.unwrap().text().await.unwrap();
    let stalled =
        metrics.lines().find(|line| line.starts_with("plimsoll_operation_stalled{") && line.contains("\"b\""));
    assert!(stalled.is_some_and(|line| line.ends_with(" 1")), "{metrics}");

    drop(stopped);
    let ended = home.ended("Backup", "b").await;
    assert_eq!(phase(&ended), "Completed", "{}\n{}", home.log(), agent_log(&home));
    assert_eq!(
        (condition_status(&ended, "ProgressStalled"), condition_status(&ended, "Complete")),
        (Some(false), Some(true)),
        "{ended:#}"
    );
    eventually("all Events are recorded", async || {
        has_event(&home, "Started").await && has_event(&home, "Succeeded").await && has_event(&home, "Recovered").await
    })
    .await;
    terminate_server(agent).await;
}
