//! ActionSets as Kanister's own controller leaves them: each end and each standstill is named.

use plimsoll_observe::{ClusterState, Kind, Overview};
use plimsoll_progress::view::Look;
use serde_json::{Value, json};

use crate::causes::text;
use crate::stock::*;

fn recorded(file: &str) -> Value {
    serde_json::from_str(match file {
        "complete" => include_str!("kanister/complete.json"),
        "failed_in_defer_phase" => include_str!("kanister/failed_in_defer_phase.json"),
        "running" => include_str!("kanister/running.json"),
        "defer_phase_not_started" => include_str!("kanister/defer_phase_not_started.json"),
        "blueprint_missing" => include_str!("kanister/blueprint_missing.json"),
        "killed_for_memory" => include_str!("kanister/killed_for_memory.json"),
        "recording" => include_str!("kanister/recording.json"),
        "not_taken_up" => include_str!("kanister/not_taken_up.json"),
        other => panic!("no recording {other}"),
    })
    .unwrap()
}

/// A Kanister in this namespace whose controller has run for so many seconds; it ended before that for this reason, if any.
fn kanister(namespace: &str, started: i64, ended: Option<&str>) -> ClusterState {
    let deployment = with(
        object(namespace, "kanister-kanister-operator", 90_000, 90_000),
        json!({ "labels": { "app": "kanister-operator" }, "status": { "readyReplicas": 1 } }),
    );
    let last = ended.map(|reason| json!({ "terminated": { "exitCode": 137, "reason": reason } }));
    let status = json!({ "phase": "Running", "containerStatuses": [{ "name": "kanister-operator", "restartCount": u8::from(ended.is_some()),
        "state": { "running": { "startedAt": ago(started) } }, "lastState": last.unwrap_or_else(|| json!({})) }] });
    let controller = pod(namespace, "kanister-operator-1", json!({ "app": "kanister-operator" }), "node-1", status);
    healthy().with(Kind::Deployment, deployment).with(Kind::Pod, controller)
}

fn why(cluster: ClusterState, file: &str) -> String {
    let set = recorded(file);
    let name = set["metadata"]["name"].as_str().unwrap().to_owned();
    text(&cluster.with(Kind::ActionSet, set), Kind::ActionSet, &name)
}

#[test]
fn what_ended_or_stands_still_under_kanister_is_named() {
    let job = pod(
        "shop",
        "kanister-job-x7k2p",
        json!({ "createdBy": "kanister" }),
        "node-1",
        json!({ "phase": "Failed", "containerStatuses": [{ "name": "container", "restartCount": 0,
            "state": { "terminated": { "exitCode": 137, "reason": "OOMKilled" } } }] }),
    );
    let healthy = || kanister("kanister", 90_000, None);
    let shown = [
        ("complete", why(healthy(), "complete")),
        ("failed in its deferPhase", why(healthy(), "failed_in_defer_phase")),
        ("as it was recorded", why(healthy(), "recording")),
        ("killed for its memory", why(healthy(), "killed_for_memory")),
        ("its pod was killed for its memory", why(healthy().with(Kind::Pod, job), "running")),
        ("controller restarted", why(kanister("kanister", 300, None), "running")),
        ("controller killed for its memory", why(kanister("kanister", 300, Some("OOMKilled")), "running")),
        ("running for long", why(healthy(), "running")),
        ("deferPhase not started", why(healthy(), "defer_phase_not_started")),
        ("blueprint missing", why(healthy(), "blueprint_missing")),
        ("not taken up", why(healthy(), "not_taken_up")),
        ("controller in another namespace", why(kanister("backup-system", 90_000, None), "not_taken_up")),
    ];
    insta::assert_snapshot!(shown.map(|(title, text)| format!("== {title}\n{text}")).join("\n\n"));
}

#[test]
fn top_shows_what_ended_as_ended() {
    for (file, look, percent) in [
        ("complete", Look::Done, Some("100.00")),
        ("failed_in_defer_phase", Look::Failed, Some("99.99")),
        ("recording", Look::Failed, Some("99.99")),
        ("blueprint_missing", Look::Failed, None),
        ("running", Look::Quiet, Some("33.33")),
    ] {
        let cluster = kanister("kanister", 90_000, None).with(Kind::ActionSet, recorded(file));
        let line = Overview::default().list_operations(&cluster).remove(0);
        let shown = line.explanation.tree.percent().map(|percent| percent.to_string());
        assert_eq!((line.look, shown.as_deref()), (look, percent), "{file}");
    }
}
