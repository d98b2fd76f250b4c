//! What people see of volumes on their way: percent, words and files, and an end that comes soon when they ask for it.

use std::path::Path;
use std::time::Duration;

use http::Method;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::wait::WAIT_TIMEOUT;
use plimsoll_testkit::{Stopwatch, cache, require};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, phase, terminate_server};
use crate::pod_volumes::{Application, agent, agent_log, server};

async fn printed(home: &Home<'_>, arguments: &[&str]) -> String {
    let output = home.command(arguments).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The two decimals behind a volume's name, as in `data (42.17%)`.
fn percent<'t>(text: &'t str, volume: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("{volume} ("))?;
    let (percent, _) = rest.split_once("%)")?;
    let (_, decimals) = percent.split_once('.')?;
    (decimals.len() == 2 && percent.parse::<f64>().is_ok_and(|percent| percent < 100.0)).then_some(percent)
}

/// The transfers of one backup or restore.
async fn of(home: &Home<'_>, kind: &str, label: &str, name: &str) -> Vec<Value> {
    let all = home.list(kind).await.into_iter().map(|one| json!(one));
    all.filter(|one| one["metadata"]["labels"][label] == name).collect()
}

fn is_counted(transfer: &Value) -> bool {
    phase(transfer) == "InProgress" && transfer["status"]["progress"]["totalBytes"].as_u64() > Some(0)
}

/// The output of `volume watch` after a while.
async fn watched(home: &Home<'_>, words: &str) -> String {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let mut command = home.command(&["volume", "watch"]);
    let mut watching = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut said = String::new();
    let listen = async {
        while let Ok(Some(line)) = lines.next_line().await {
            said += &(line + "\n");
            if said.contains(words) {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(WAIT_TIMEOUT, listen).await;
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn volume_transfers_show_percentage_message_and_files_and_wait_in_the_queue() {
    let bed = Bed::local_with_pods().await;
    require!(cache::program("versitygw"));
    let application = Application::start(&bed, "shop", 96 << 20).await;
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    let _server = server(&home, "built-in", &[]);
    let stuck = proxy.inject(Requests::with_method(Method::PUT).containing("/data/"), Fault::Hang);

    let many = agent(&home, &[], &[]);
    home.backup("many", json!({ "includedNamespaces": [application.namespace] })).await;
    eventually("both volumes are on their way at the same time", async || {
        let all = of(&home, "PodVolumeBackup", "velero.io/backup-name", "many").await;
        let has_total = |one: &Value| is_counted(one) && one["status"]["plimsoll"]["totalFiles"].is_u64();
        all.len() == 2 && all.iter().all(has_total)
    })
    .await;
    let text = printed(&home, &["backup", "describe", "many"]).await;
    assert!(percent(&text, "data").is_some() && percent(&text, "scratch").is_some(), "{text}");
    let text = printed(&home, &["volume", "describe", "--backup", "many"]).await;
    for words in ["Phase:", "InProgress", "Progress:", "Bytes:", "Files:", "Doing:"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let text = watched(&home, "shop/writer").await;
    assert!(text.contains("shop/writer") && !text.contains("without a word"), "{text}");
    home.patch("Operation", "backup-many", json!({ "spec": { "cancel": true } })).await;
    home.ended("Backup", "many").await;
    terminate_server(many).await;

    let one = agent(&home, &["--concurrency", "1"], &[]);
    home.backup("one", json!({ "includedNamespaces": [application.namespace] })).await;
    let words = "waiting for one of 1 transfers on node local to end";
    eventually("one volume waits for the other, and says so", async || {
        let all = of(&home, "PodVolumeBackup", "velero.io/backup-name", "one").await;
        let waits = all.iter().any(|one| phase(one) == "Accepted" && one["status"]["plimsoll"]["doing"] == words);
        all.iter().filter(|one| phase(one) == "InProgress").count() == 1 && waits
    })
    .await;
    let text = printed(&home, &["volume", "get", "--backup", "one"]).await;
    assert!(text.contains(words), "{text}");
    home.patch("Operation", "backup-one", json!({ "spec": { "cancel": true } })).await;
    home.ended("Backup", "one").await;
    drop(stuck);

    home.backup("good", json!({ "includedNamespaces": [application.namespace] })).await;
    let backup = home.ended("Backup", "good").await;
    assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages("good", "errors"), agent_log(&home));
    let done = of(&home, "PodVolumeBackup", "velero.io/backup-name", "good").await;
    let files = |one: &Value| one["status"]["plimsoll"]["filesDone"].as_u64();
    assert!(done.iter().all(|one| files(one) > Some(0)), "{done:#?}");
    terminate_server(one).await;
}

/// The packs of a repository that hold content of files: those with directories are small.
fn large_packs(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in directory.read_dir().unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(large_packs(&entry.path()));
        } else if directory.components().any(|part| part.as_os_str() == "data")
            && entry.metadata().unwrap().len() > 2 << 20
        {
            found.push(entry.file_name().into_string().unwrap());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_restore_shows_its_percentage_and_stops_soon_when_cancelled() {
    let bed = Bed::local_with_pods().await;
    require!(cache::program("versitygw"));
    let application = Application::start(&bed, "shop", 96 << 20).await;
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages("b", "errors"), agent_log(&home));
    application.lose().await;

    // Directories come, and with them the total; so does the beginning of each pack of content, and no more of it.
    let packs = large_packs(&home.bucket);
    assert!(packs.len() > 2, "{packs:?}");
    let reads = |pack: &String| Requests::with_method(Method::GET).containing(pack);
    let _stuck: Vec<_> = packs.iter().map(|pack| proxy.inject(reads(pack), Fault::Hang)).collect();
    let begun = |pack| proxy.inject(reads(pack).first(1), Fault::Latency(Duration::ZERO));
    let _begun: Vec<_> = packs.iter().map(begun).collect();
    home.restore("r", json!({ "backupName": "b" })).await;
    eventually("a part of the volume is back", async || {
        let all = of(&home, "PodVolumeRestore", "velero.io/restore-name", "r").await;
        all.iter().any(|one| is_counted(one) && one["status"]["progress"]["bytesDone"].as_u64() > Some(1 << 20))
    })
    .await;
    let text = printed(&home, &["restore", "describe", "r"]).await;
    assert!(percent(&text, "data").is_some_and(|percent| percent != "0.00"), "{text}");
    let text = printed(&home, &["volume", "describe", "--restore", "r"]).await;
    assert!(text.contains("InProgress") && text.contains("Bytes:"), "{text}");

    let asked = Stopwatch::start();
    home.patch("Operation", "restore-r", json!({ "spec": { "cancel": true } })).await;
    let restore = home.ended("Restore", "r").await;
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}\n{}", asked.elapsed(), agent_log(&home));
    assert_eq!((phase(&restore), &restore["status"]["failureReason"]), ("Failed", &json!("Cancelled")), "{restore:#}");
    let left = of(&home, "PodVolumeRestore", "velero.io/restore-name", "r").await;
    let data = left.iter().find(|one| one["spec"]["volume"] == "data").unwrap();
    assert_eq!(phase(data), "Canceled", "{left:#?}");
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_of_a_volume_whose_pod_does_not_wait_yet_is_cancelled_at_once() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let agent = agent(&home, &[], &[]);
    let waiting = json!({ "apiVersion": "velero.io/v1", "kind": "PodVolumeRestore", "metadata": { "name": "waits" },
        "spec": { "pod": { "kind": "Pod", "namespace": "nowhere", "name": "absent", "uid": "none" }, "volume": "data",
            "backupStorageLocation": "default", "repoIdentifier": "", "snapshotID": "abcdef12", "sourceNamespace": "nowhere",
            "uploaderType": "restic" } });
    home.create(waiting).await.unwrap();
    eventually("the agent is at work", async || agent_log(&home).contains("at work")).await;
    home.patch("PodVolumeRestore", "waits", json!({ "spec": { "cancel": true } })).await;
    let ended = home.ended("PodVolumeRestore", "waits").await;
    assert_eq!((phase(&ended), &ended["status"]["message"]), ("Canceled", &json!("cancelled")), "{ended:#}");
    terminate_server(agent).await;
}
