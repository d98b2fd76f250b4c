//! Hooks around the backup of a pod, in real containers: a post-hook runs for every pre-hook that has started.

use plimsoll_testkit::pod::PodHandle;
use plimsoll_testkit::{Pod, require};
use serde_json::json;

use crate::bed::{Bed, Home, eventually, phase};

const JOURNAL: &str = "/tmp/journal";

/// A pod that writes down what its hooks do.
async fn application(bed: &Bed, namespace: &str, name: &str, annotations: &[(&str, &str)]) -> PodHandle {
    let mut pod = Pod::idle(name).label("app", name);
    for (key, value) in annotations {
        pod = pod.annotation(key, value);
    }
    let running = pod.create(&bed.client, namespace).await.unwrap();
    running.ready().await.unwrap();
    running
}

fn shell(script: &str) -> String {
    json!(["sh", "-c", script]).to_string()
}

async fn written(pod: &PodHandle) -> Vec<String> {
    let output = pod.exec(["sh", "-c", &format!("cat {JOURNAL} 2>/dev/null || true")]).await.unwrap();
    output.stdout.lines().map(str::to_owned).collect()
}

fn has_pod(home: &Home<'_>, backup: &str, name: &str) -> bool {
    home.archived(backup).iter().any(|path| path.contains("/pods/") && path.ends_with(&format!("/{name}.json")))
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_of_annotations_and_of_the_spec_run_around_their_pods() {
    let bed = Bed::real(require!(plimsoll_testkit::cluster().await)).await;
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.application("shop", 3).await;
    let pre = shell(&format!("echo pre >> {JOURNAL}"));
    let post = shell(&format!("echo post >> {JOURNAL}"));
    let annotated = application(
        &bed,
        &shop,
        "annotated",
        &[("pre.hook.backup.velero.io/command", &pre), ("post.hook.backup.velero.io/command", &post)],
    )
    .await;
    let by_spec = application(&bed, &shop, "by-spec", &[]).await;
    let broken = application(
        &bed,
        &shop,
        "broken",
        &[
            ("pre.hook.backup.velero.io/command", &shell("echo cannot freeze >&2; exit 3")),
            ("post.hook.backup.velero.io/command", &post),
        ],
    )
    .await;
    let careless = application(
        &bed,
        &shop,
        "careless",
        &[("pre.hook.backup.velero.io/command", "/does/not/exist"), ("pre.hook.backup.velero.io/on-error", "Continue")],
    )
    .await;
    let slow = application(
        &bed,
        &shop,
        "slow",
        &[
            ("pre.hook.backup.velero.io/command", &shell("sleep 600")),
            ("pre.hook.backup.velero.io/timeout", "1s"),
            ("post.hook.backup.velero.io/command", &post),
        ],
    )
    .await;
    let hook = |word: &str| json!([{ "exec": { "container": "main", "command": ["sh", "-c", format!("echo {word} >> {JOURNAL}")] } }]);
    let spec = json!({ "includedNamespaces": [shop], "hooks": { "resources": [{
        "name": "by-label", "labelSelector": { "matchLabels": { "app": "by-spec" } },
        "pre": hook("spec-pre"), "post": hook("spec-post") }] } });
    home.backup("b", spec).await;
    let backup = home.ended("Backup", "b").await;

    assert_eq!(written(&annotated).await, ["pre", "post"]);
    assert_eq!(written(&by_spec).await, ["spec-pre", "spec-post"]);
    assert_eq!(written(&broken).await, ["post"], "a pair whose first half failed is closed all the same");
    assert_eq!(written(&slow).await, ["post"], "also one whose first half may still be running");
    assert!(written(&careless).await.is_empty());
    let kept = ["annotated", "by-spec", "careless"];
    assert!(kept.iter().all(|name| has_pod(&home, "b", name)), "{:#?}", home.archived("b"));
    assert!(!["broken", "slow"].iter().any(|name| has_pod(&home, "b", name)), "{:#?}", home.archived("b"));
    let status = &backup["status"];
    assert_eq!(
        (phase(&backup), &status["errors"], &status["warnings"]),
        ("PartiallyFailed", &json!(2), &json!(1)),
        "{}\n{}",
        home.messages("b", "errors"),
        home.messages("b", "warnings")
    );
    assert_eq!(status["hookStatus"], json!({ "hooksAttempted": 9, "hooksFailed": 3 }), "{backup:#}");
    let errors = home.messages("b", "errors");
    assert!(errors.contains(&format!("v1/Pod {shop}/broken")) && errors.contains("cannot freeze"), "{errors}");
    assert!(errors.contains(&format!("v1/Pod {shop}/slow")) && errors.contains("timed out after 1s"), "{errors}");
    assert_eq!(status["progress"]["itemsFailed"], 2, "{backup:#}");
    bed.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_between_the_hooks_still_runs_the_post_hooks() {
    let bed = Bed::real(require!(plimsoll_testkit::cluster().await)).await;
    let home = bed.home("home").await;
    let shop = bed.application("shop", 3).await;
    let mut closed = Vec::new();
    let points = ["hook.intent.before", "hook.pre.before", "hook.pre.after", "hook.post.after"];
    for point in points {
        let name = point.replace('.', "-");
        let pod = application(
            &bed,
            &shop,
            &name,
            &[
                ("pre.hook.backup.velero.io/command", &shell(&format!("echo pre >> {JOURNAL}"))),
                ("post.hook.backup.velero.io/command", &shell(&format!("echo post >> {JOURNAL}"))),
            ],
        )
        .await;
        let spec = json!({ "includedNamespaces": [shop], "labelSelector": { "matchLabels": { "app": name } } });
        let mut server = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", &format!("{point}:1"))]);
        home.backup(&name, spec).await;
        eventually(&format!("the server died at {point}"), async || server.try_wait().unwrap().is_some()).await;
        let before = written(&pod).await;
        let _server = home.server_with_short_lease(&[]);
        let backup = home.ended("Backup", &name).await;
        assert_eq!(phase(&backup), "Completed", "{point}: {backup:#}");
        let after = written(&pod).await;
        assert!(has_pod(&home, &name, &name), "{point}");
        assert_eq!(after[after.len() - 2..], ["pre", "post"], "{point}: the second attempt is a whole pair: {after:?}");
        if before.last().is_some_and(|line| line == "pre") {
            assert_eq!(after[before.len()], "post", "{point}: what was open is closed before anything else: {after:?}");
            closed.push(point);
        }
    }
    assert_eq!(closed, ["hook.pre.after"], "the other points are before the pair is opened or after it is closed");
    bed.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_backup_runs_the_post_hooks_of_started_pre_hooks() {
    let bed = Bed::real(require!(plimsoll_testkit::cluster().await)).await;
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.application("shop", 3).await;
    let pod = application(
        &bed,
        &shop,
        "db",
        &[
            ("pre.hook.backup.velero.io/command", &shell(&format!("echo pre >> {JOURNAL}; sleep 600"))),
            ("pre.hook.backup.velero.io/timeout", "10m"),
            ("post.hook.backup.velero.io/command", &shell(&format!("echo post >> {JOURNAL}"))),
        ],
    )
    .await;
    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    eventually("the pre-hook runs", async || written(&pod).await == ["pre"]).await;
    eventually("the backup says what it waits for", async || {
        let operation = home.list("Operation").await.into_iter().next();
        operation.is_some_and(|operation| {
            operation.data.to_string().contains("pre-hook annotation in container main to end")
        })
    })
    .await;
    let cancelled = home.command(&["cancel", "backup/b", "--wait"]).output().await.unwrap();
    let backup = home.ended("Backup", "b").await;
    assert_eq!(backup["status"]["failureReason"], "Cancelled", "{backup:#}\n{cancelled:?}");
    assert_eq!(written(&pod).await, ["pre", "post"]);
    assert!(!home.bucket.join("backups/b").exists(), "nothing is left in the location");
    bed.clear().await;
}
