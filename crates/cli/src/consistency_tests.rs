//! Every number the same everywhere: one tree, and what each rendering makes of it.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_observe::{ClusterState, Kind, Overview};
use plimsoll_progress::view::{left_text, rows, rows_within};
use plimsoll_progress::{
    Ending, Operation, Percent, Snapshot, Speed, Task, Total, Trees, Unit, VirtualClock, truncate,
};
use plimsoll_progress_stream::AccessToken;
use plimsoll_serve::{Dashboard, DashboardSettings};
use serde_json::{Value, json};

use crate::args::names;
use crate::commands::top::Cells;
use crate::events;
use crate::subjects::Subject;

const UID: &str = "the-uid";

/// A backup that reads objects and moves two volumes, at different speeds.
fn backup() -> (Operation, Vec<Task>) {
    let clock = VirtualClock::new();
    let operation = Operation::new("backup-nightly", clock.clock());
    operation.begin_epoch(7);
    let reading = operation.root().child("reading");
    let items = reading.meter(Unit::Items);
    items.set_total(Total::Final(4000));
    let volumes = operation.root().child("volumes");
    let moved = [("a", 3_u64), ("b", 5)].map(|(name, speed)| (volumes.child(name), speed << 20));
    let meters = moved.each_ref().map(|(task, speed)| {
        let meter = task.meter(Unit::Bytes);
        meter.set_total(Total::Final(900 << 20));
        (meter, *speed)
    });
    for _ in 0..30 {
        items.add(7);
        for (meter, speed) in &meters {
            meter.add(*speed);
        }
        clock.advance(Duration::from_secs(1));
        operation.snapshot();
    }
    let tasks = moved.into_iter().map(|(task, _)| task).chain([reading, volumes]).collect();
    (operation, tasks)
}

fn object() -> Value {
    json!({ "metadata": { "name": "nightly", "namespace": "velero", "uid": UID, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "status": { "phase": "InProgress", "startTimestamp": "2026-01-01T00:00:00Z" } })
}

fn cluster() -> ClusterState {
    ClusterState::new("velero", "2026-01-01T00:01:00Z".parse().unwrap()).with(Kind::Backup, object())
}

/// Rate and time left, as a program reads them.
fn numbers(value: &Value) -> (Option<u64>, Option<[u64; 2]>) {
    (value["rate"].as_u64(), serde_json::from_value(value["secondsLeft"].clone()).ok())
}

/// The percentage and the token, as a program reads them.
fn identity(value: &Value) -> (String, String) {
    let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
    (text("percent"), text("token"))
}

/// A cluster in which nothing but objects tell of an operation: the Backup in this phase, and its Operation with a cut tree.
fn written(tree: &Snapshot, phase: &str) -> ClusterState {
    let summary = plimsoll_operations::projection::summary(tree, Timestamp::UNIX_EPOCH);
    let mut backup = object();
    backup["status"]["phase"] = json!(phase);
    backup["status"]["plimsoll"] = serde_json::to_value(&summary).unwrap();
    let operation = json!({ "metadata": { "name": "backup-nightly", "namespace": "velero" },
        "spec": { "subject": { "uid": UID } },
        "status": { "plimsoll": summary, "tree": truncate::ended(tree) } });
    let now = "2026-01-01T00:01:00Z".parse().unwrap();
    ClusterState::new("velero", now).with(Kind::Backup, backup).with(Kind::Operation, operation)
}

#[test]
fn an_operation_that_has_ended_shows_the_same_numbers_on_every_surface_and_after_a_restart_of_the_server() {
    let endings = [
        (Ending::Succeeded, "Completed"),
        (Ending::Succeeded, "PartiallyFailed"),
        (Ending::Failed("disk full".into()), "Failed"),
        (Ending::Cancelled("asked to".into()), "Failed"),
    ];
    for (ending, phase) in endings {
        let (operation, _tasks) = backup();
        let before = operation.snapshot();
        operation.end(ending);
        let tree = operation.snapshot();
        let wanted = (tree.percent().unwrap().to_string(), tree.token.unwrap().to_string());
        assert!(tree.token > before.token, "other numbers have another token");
        let cluster = written(&tree, phase);
        let backup = &cluster.all(Kind::Backup)[0];
        assert_eq!(identity(backup.at("/status/plimsoll").unwrap()), wanted, "{phase}: the custom resource");
        let line = Overview::default().list_operations(&cluster).remove(0);
        assert_eq!(identity(&serde_json::to_value(&line).unwrap()), wanted, "{phase}: top -o json");
        let watched = events::observed_as_value(backup, &line.explanation);
        assert_eq!(identity(&watched), wanted, "{phase}: watch --events json");
        let subject =
            Subject { kind: names::ResourceKind::Backup, object: backup.at("").unwrap().clone(), operation: None };
        assert_eq!(identity(&events::as_value(&subject, None)), wanted, "{phase}: --wait --events json");
        let shown = line.explanation.tree;
        assert_eq!(shown.sum(Unit::Bytes), tree.sum(Unit::Bytes), "{phase}: bytes");
        let durations = |tree: &Snapshot| -> Vec<_> {
            tree.nodes.iter().map(|node| (node.path.clone(), node.ages.elapsed, node.percent)).collect()
        };
        assert_eq!(durations(&shown), durations(&tree), "{phase}: durations");
        // Without its Operation the percentage is still the one that was written.
        let mut alone = ClusterState::new("velero", "2026-01-01T00:01:00Z".parse().unwrap());
        alone.add(backup.clone());
        let line = Overview::default().list_operations(&alone).remove(0);
        assert_eq!(line.explanation.tree.percent().unwrap().to_string(), wanted.0, "{phase}: a sketch");
    }
}

#[test]
fn when_the_stream_is_lost_the_custom_resources_show_nothing_less() {
    let (operation, tasks) = backup();
    let older = operation.snapshot();
    tasks[0].meter(Unit::Bytes).add(200 << 20);
    tasks[2].meter(Unit::Items).add(500);
    let live = operation.snapshot();
    assert!(live.percent().map(Percent::hundredths) > older.percent().map(Percent::hundredths));
    let trees = Trees::default();
    let observer = operation.observer();
    let shown = trees.register(UID, move || Some(observer.snapshot()));
    let mut overview = Overview::with_trees(trees);
    let cluster = written(&older, "InProgress");
    let numbers = |overview: &mut Overview| {
        let line = overview.list_operations(&cluster).remove(0);
        let tree = line.explanation.tree;
        (tree.percent().map(Percent::hundredths), tree.sum(Unit::Bytes).map(|bytes| bytes.settled()), tree.token)
    };
    let (percent, bytes, token) = numbers(&mut overview);
    assert_eq!(token, live.token);
    drop(shown);
    assert_eq!(numbers(&mut overview), (percent, bytes, None), "raised numbers are those of no token");
    assert_eq!(numbers(&mut Overview::default()).2, older.token, "another reader sees what was written");
}

#[test]
fn one_tree_has_one_rate_and_one_time_left_wherever_it_is_shown() {
    let (operation, _tasks) = backup();
    let tree = operation.snapshot();
    let Speed { rate, unit, left } = tree.speed();
    assert_eq!((rate, unit), (Some(8 << 20), Unit::Bytes));
    let left = left.unwrap();
    let wanted = (rate, Some([left.low, left.high]));
    let named = (tree.percent().unwrap().to_string(), tree.token.unwrap().to_string());
    let words = ("8.0 MiB/s".to_owned(), left_text(left));

    // What is drawn, however little of it.
    for most in [1, 2, 16] {
        let root = &rows_within(&tree, most)[0];
        assert_eq!((root.rate.clone(), root.left.clone()), words, "{most} rows");
    }
    assert_eq!((rows(&tree)[0].rate.clone(), rows(&tree)[0].left.clone()), words);

    // The custom resource, and what reads it.
    let summary = serde_json::to_value(plimsoll_operations::projection::summary(&tree, Timestamp::UNIX_EPOCH)).unwrap();
    assert_eq!((numbers(&summary), &summary["unit"]), (wanted, &json!("bytes")));
    assert_eq!(identity(&summary), named);
    let mut written = object();
    written["status"]["plimsoll"] = summary;
    let subject = Subject { kind: names::ResourceKind::Backup, object: written, operation: None };
    let event = events::as_value(&subject, None);
    assert_eq!((numbers(&event), &event["unit"]), (wanted, &json!("bytes")), "{event}");
    assert_eq!(identity(&event), named);
    let event = events::as_value(&subject, Some(&tree));
    assert_eq!((numbers(&event), &event["unit"]), (wanted, &json!("bytes")), "{event}");
    assert_eq!(identity(&event), named);

    // The observer, with the tree in the memory of the server.
    let trees = Trees::default();
    let observer = operation.observer();
    let _shown = trees.register(UID, move || Some(observer.snapshot()));
    let cluster = cluster();
    let line = Overview::with_trees(trees).list_operations(&cluster).remove(0);
    let listed = serde_json::to_value(&line).unwrap();
    assert_eq!((numbers(&listed), &listed["unit"]), (wanted, &json!("bytes")), "{listed}");
    assert_eq!(identity(&listed), named);
    let cells = Cells::of(&line);
    assert_eq!((cells.rate, cells.left), words);
    let watched = events::observed_as_value(&cluster.all(Kind::Backup)[0], &line.explanation);
    assert_eq!(numbers(&watched), wanted, "{watched}");
    assert_eq!(identity(&watched), named);
    assert!(line.explanation.headline.contains(&format!("{} left", words.1)), "{}", line.explanation.headline);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_and_the_metrics_agree() {
    let (operation, _tasks) = backup();
    let tree = operation.snapshot();
    let (speed, token_of_tree) = (tree.speed(), tree.token.unwrap());
    let left = speed.left.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let api = plimsoll_local::Api::open(directory.path()).await.unwrap();
    let client = api.client("velero");
    plimsoll_controllers::install_crds(client.clone()).await.unwrap();
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "velero" } })).unwrap();
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client.clone());
    // It may be there from the beginning.
    let _ = namespaces.create(&kube::api::PostParams::default(), &namespace).await;
    let kind = Kind::Backup.resource();
    let created = {
        let mut wanted = kube::api::DynamicObject::new("nightly", &kind).within("velero");
        wanted.data = json!({ "status": object()["status"] });
        let api: kube::Api<kube::api::DynamicObject> = kube::Api::namespaced_with(client.clone(), "velero", &kind);
        api.create(&kube::api::PostParams::default(), &wanted).await.unwrap()
    };
    let trees = Trees::default();
    let observer = operation.observer();
    let _shown = trees.register(created.metadata.uid.as_deref().unwrap(), move || Some(observer.snapshot()));
    let token = AccessToken::generate();
    let settings = DashboardSettings {
        address: ([127, 0, 0, 1], 0).into(),
        token: token.clone().into(),
        open_metrics: true,
        allow_changes: false,
        namespace: "velero".to_owned(),
        next_run: |_, _| None,
    };
    let listening = Dashboard::new(client, settings).with_trees(trees).listen().await.unwrap();
    let ask = async |path: &str| {
        let url = format!("http://{}{path}", listening.address);
        let answer = reqwest::Client::new().get(url).header("X-Plimsoll-Token", token.reveal()).send().await.unwrap();
        answer.text().await.unwrap()
    };
    let detail: Value = serde_json::from_str(&ask("/api/operations/backup/velero/nightly").await).unwrap();
    let words = (speed.rate_text(), speed.left_text());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    assert_eq!((text(&detail["row"]["rate"]), text(&detail["row"]["left"])), words, "{detail:#}");
    assert_eq!((text(&detail["tree"][0]["rate"]), text(&detail["tree"][0]["left"])), words, "{detail:#}");
    assert_eq!(detail["unit"], "bytes");
    assert_eq!(text(&detail["row"]["token"]), token_of_tree.to_string());
    assert_eq!(text(&detail["row"]["percent"]), format!("{} %", tree.percent().unwrap()));
    let point = detail["trail"].as_array().unwrap().last().unwrap();
    assert_eq!((point["rate"].as_u64(), &point["left"]), (speed.rate, &json!([left.low, left.high])), "{point}");
    let metrics = ask("/metrics").await;
    let sample = |start: &str, with: &str| {
        let found = metrics.lines().find(|line| line.starts_with(start) && line.contains(with));
        found.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_else(|| panic!("{metrics}"))
    };
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let as_float = |number: u64| number as f64;
    let close = |shown: f64, wanted: u64| (shown - as_float(wanted)).abs() < 0.5;
    assert!(close(sample("plimsoll_operation_rate{", "unit=\"bytes\""), speed.rate.unwrap()), "{metrics}");
    let epoch = format!("epoch=\"{}\"", token_of_tree.epoch);
    assert!(close(sample("plimsoll_operation_sequence{", &epoch), token_of_tree.sequence), "{metrics}");
    let bytes = tree.sum(Unit::Bytes).unwrap();
    assert!(close(sample("plimsoll_operation_done{", "unit=\"bytes\""), bytes.settled()), "{metrics}");
    assert!(close(sample("plimsoll_operation_seconds_left{", "bound=\"low\""), left.low), "{metrics}");
    assert!(close(sample("plimsoll_operation_seconds_left{", "bound=\"high\""), left.high), "{metrics}");
}
