//! The demo, as it is shown to people, with less to carry.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::bed::{eventually, plimsoll};

/// A response of the dashboard, if it responds.
async fn ask(base: &str, token: &str, path: &str) -> Option<serde_json::Value> {
    let request = reqwest::Client::new().get(format!("{base}/api/{path}")).header("X-Plimsoll-Token", token);
    let text = request.send().await.ok()?.text().await.ok()?;
    serde_json::from_str(&text).ok()
}

/// The operations that it reports.
async fn rows(base: &str, token: &str) -> Option<Vec<serde_json::Value>> {
    Some(ask(base, token, "overview").await?["news"]["rows"].as_array()?.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_restores_all_data_and_reports_the_stalled_transfer() {
    let mut command = plimsoll();
    command.args(["demo", "--objects", "60", "--megabytes", "48"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut demo = command.spawn().unwrap();
    let mut stderr = demo.stderr.take().unwrap();
    let logged = tokio::spawn(async move {
        let mut logged = String::new();
        stderr.read_to_string(&mut logged).await.map(|_| logged)
    });
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let mut text = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some(url) = line.trim().strip_prefix("dashboard: ") {
            let (base, token) = url.split_once("/#token=").unwrap();
            eventually("the dashboard answers", async || rows(base, token).await.is_some()).await;
        }
        // Not an address that was true once: the server has been killed twice by then.
        if line.contains("back it up again") {
            let url = text.lines().find_map(|line| line.trim().strip_prefix("dashboard: ")).unwrap();
            let (base, token) = url.split_once("/#token=").unwrap();
            eventually("the dashboard shows what was", async || rows(base, token).await.is_some_and(|r| r.len() >= 3))
                .await;
        }
        text += &format!("{line}\n");
    }
    let logged = logged.await.unwrap().unwrap();
    assert_eq!(demo.wait().await.unwrap().code(), Some(0), "{text}\n{logged}");
    // Nothing goes wrong that is not part of the story, in our own words or in those of a library.
    let stray: Vec<_> = logged.lines().filter(|line| line.contains(" ERROR ") || line.contains(" WARN ")).collect();
    assert_eq!(stray, Vec::<&str>::new(), "{text}");
    let addresses = text.lines().filter_map(|line| line.trim().strip_prefix("dashboard: "));
    let is_whole = |url: &str| url.starts_with("http://127.0.0.1:") && url.contains("/#token=");
    assert_eq!(addresses.map(is_whole).collect::<Vec<_>>(), [true], "one address, for a browser:\n{text}");
    for part in [
        "create an application: namespace shop with 60 objects",
        "backup demo: Completed",
        "restore demo: Completed",
        "all 60 objects and all files are restored unchanged",
        "its artifact: 1200 rows",
        "backup second: Completed",
        "explained after",
        "stopped by a signal",
        "all data restored",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert_eq!(text.matches("the server was killed at").count(), 2, "{text}");
    assert!(!text.contains("~100.00"), "something was complete before its end:\n{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_is_kept_with_keep_and_removed_on_request() {
    let mut command = plimsoll();
    command.args(["demo", "--stay", "--objects", "10", "--megabytes", "16"]).stdout(Stdio::piped());
    let mut demo = command.spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let mut text = String::new();
    let url = loop {
        let line = lines.next_line().await.unwrap().unwrap_or_else(|| panic!("it went by itself:\n{text}"));
        text += &format!("{line}\n");
        if let Some(said) = line.strip_prefix("then run `plimsoll top`, or open ") {
            break said.strip_suffix("; Ctrl-C stops it").unwrap().to_owned();
        }
    };
    assert!(text.contains("all data restored"), "{text}");
    let (base, token) = url.split_once("/#token=").unwrap();
    let seen = rows(base, token).await.unwrap_or_else(|| panic!("the dashboard is gone:\n{text}"));
    assert!(seen.iter().any(|row| row["key"] == "backup/velero/second" && row["verdict"] == "Fine"), "{seen:?}");
    let detail = ask(base, token, "operations/backup/velero/second").await.unwrap();
    let points = detail["trail"].as_array().map_or(0, Vec::len);
    assert!(points >= 2, "{points} points were sampled without a client while it ran: {detail:#}");
    assert!(demo.try_wait().unwrap().is_none(), "{text}");
    let id = Pid::from_raw(i32::try_from(demo.id().unwrap()).unwrap()).unwrap();
    kill_process(id, Signal::INT).unwrap();
    assert_eq!(demo.wait().await.unwrap().code(), Some(0), "{text}");
    assert!(rows(base, token).await.is_none(), "something of it is still there");
}
