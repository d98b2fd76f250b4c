//! Commands and containers that a restore adds to pods, in real containers.

use plimsoll_testkit::wait::WAIT_TIMEOUT;
use plimsoll_testkit::{image, require};
use serde_json::{Value, json};

use crate::bed::{Bed, eventually, phase, terminate_server};
use crate::planted::{Planted, assert_restored, counts, read, restored_file};

fn pod(namespace: &str, name: &str, annotations: &Value) -> Value {
    let image = image::shell();
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": name }, "annotations": annotations },
        "spec": { "terminationGracePeriodSeconds": 1, "containers": [{ "name": "main", "image": image,
            "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", "trap exit TERM; sleep 2147483647 & wait"] }] } })
}

fn shell(script: &str) -> String {
    json!(["sh", "-c", script]).to_string()
}

fn post(name: &str) -> String {
    format!("post.hook.restore.velero.io/{name}")
}

fn in_pod(cluster: &plimsoll_testkit::Cluster, namespace: &str, name: &str, script: &str) -> String {
    cluster.kubectl(["exec", "-n", namespace, name, "-c", "main", "--", "sh", "-c", script]).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_of_annotations_and_of_the_spec_run_in_restored_pods() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let bed = Bed::real(cluster).await;
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.ns("shop");
    let init = |name: &str| format!("init.hook.restore.velero.io/{name}");
    Planted::new()
        .object("pods", &pod(&shop, "annotated", &json!({ post("command"): shell("echo annotated > /tmp/hook") })))
        .object("pods", &pod(&shop, "by-spec", &json!({})))
        .object("pods", &pod(&shop, "failing", &json!({ post("command"): shell("echo broken >&2; exit 3") })))
        .object("pods", &pod(&shop, "lost", &json!({ post("command"): "true", post("container"): "absent" })))
        .object("pods", &pod(&shop, "slow", &json!({ post("command"): shell("sleep 600"), post("exec-timeout"): "1s" })))
        .object("pods", &pod(&shop, "prepared", &json!({ init("container-image"): image::shell(), init("container-name"): "first", init("command"): shell("true") })))
        .plant(&home, "b")
        .await;
    let exec = |command: &str, on_error: &str| json!({ "exec": { "command": ["sh", "-c", command], "onError": on_error, "waitTimeout": "2m", "waitForReady": true } });
    let hooks = json!({ "resources": [{ "name": "warm", "labelSelector": { "matchLabels": { "app": "by-spec" } },
        "postHooks": [exec("echo one >> /tmp/hook", "Continue"), exec("exit 4", "Fail"), exec("echo never >> /tmp/hook", "Continue")] }] });
    home.restore("r", json!({ "backupName": "b", "hooks": hooks })).await;
    eventually("it is finalizing", async || phase(&home.get("Restore", "r").await).starts_with("Finalizing")).await;
    let restore = home.ended("Restore", "r").await;
    assert_restored(&home, &restore, ("PartiallyFailed", [6, 6, 0, 0]));
    assert_eq!(restore["status"]["hookStatus"], json!({ "hooksAttempted": 7, "hooksFailed": 5 }), "{restore:#}");
    assert_eq!(in_pod(cluster, &shop, "annotated", "cat /tmp/hook"), "annotated\n");
    assert_eq!(
        in_pod(cluster, &shop, "by-spec", "cat /tmp/hook"),
        "one\n",
        "what comes behind a failure that must not be is not run"
    );
    let errors = restored_file(&home, "r", "results.gz")["errors"].to_string();
    for expected in ["broken", "container not found in the pod", "timed out after 1s", "not run: hook warm failed"] {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
    let prepared = read(&bed, "v1", "Pod", Some(&shop), "prepared").await.unwrap();
    assert_eq!(prepared["spec"]["initContainers"][0]["name"], "first");
    bed.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_waits_for_a_container_by_name_until_a_timeout() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let bed = Bed::real(cluster).await;
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.ns("shop");
    let mut never = pod(&shop, "never", &json!({ post("command"): "true", post("wait-timeout"): "8s" }));
    never["spec"]["nodeSelector"] = json!({ "no": "such-node" });
    Planted::new().object("pods", &never).plant(&home, "b").await;
    home.restore("r", json!({ "backupName": "b" })).await;
    eventually("the operation says what it waits for", async || {
        let operations: String =
            home.list("Operation").await.iter().map(|operation| operation.data.to_string()).collect();
        operations.contains(&format!("waiting for container main of pod {shop}/never to be running"))
    })
    .await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(
        (phase(&restore), &restore["status"]["hookStatus"]["hooksFailed"]),
        ("PartiallyFailed", &json!(1)),
        "{restore:#}"
    );
    let errors = restored_file(&home, "r", "results.gz")["errors"].to_string();
    assert!(errors.contains("the container was not running within 8s"), "{errors}");
    bed.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_at_most_once_whenever_the_server_dies() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let bed = Bed::real(cluster).await;
    for (point, runs, failed) in
        [("restore.hook.before", "0", 1), ("restore.hook.after", "1", 1), ("status.final.before", "1", 0)]
    {
        let home = bed.home(&point.replace('.', "-")).await;
        let shop = bed.ns(&format!("shop-{}", point.replace('.', "-")));
        let command = shell("echo x >> /tmp/hook");
        Planted::new()
            .object("pods", &pod(&shop, "p", &json!({ "post.hook.restore.velero.io/command": command })))
            .plant(&home, "b")
            .await;
        home.restore("r", json!({ "backupName": "b" })).await;
        let mut first = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", point)]);
        let died = tokio::time::timeout(WAIT_TIMEOUT, first.wait()).await.unwrap().unwrap();
        assert!(!died.success());
        let second = home.server_with_short_lease(&[]);
        let restore = home.ended("Restore", "r").await;
        assert_eq!(counts(&restore), [1, 1, 0, 0], "{point}: {restore:#}");
        let hooks = &restore["status"]["hookStatus"];
        assert_eq!(
            (&hooks["hooksAttempted"], &hooks["hooksFailed"]),
            (&json!(1), &json!(failed)),
            "{point}: {restore:#}"
        );
        let count = in_pod(cluster, &shop, "p", "cat /tmp/hook 2>/dev/null | wc -l");
        assert_eq!(count.trim(), runs, "{point}");
        if failed == 1 {
            let errors = restored_file(&home, "r", "results.gz")["errors"].to_string();
            assert!(errors.contains("interrupted by a restart of the server"), "{point}: {errors}");
        }
        terminate_server(second).await;
    }
    bed.clear().await;
}
