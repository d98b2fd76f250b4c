//! ActionSets that a new server resumes although objects have changed since the old server died.

use serde_json::{Value, json};

use crate::actions::{ProgressWatch, act_on, ask, ended, make, message, note, output, shell, state, task};
use crate::bed::{Bed, Home, eventually};
use crate::killed::has_no_open_operations;

/// Runs a server until it dies at a point.
async fn run_server_until_killed(home: &Home<'_>, point: &str) {
    let mut server = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", point)]);
    let status = server.wait().await.unwrap();
    assert!(!status.success(), "{}", home.log());
}

/// The states of the phases of the first action, including the deferred phase.
fn states(set: &Value) -> Vec<String> {
    let action = &set["status"]["actions"][0];
    let phases = action["phases"].as_array().into_iter().flatten().chain(action.get("deferPhase"));
    phases.map(|phase| phase["state"].as_str().unwrap_or_default().to_owned()).collect()
}

/// No phase is reported as running, and no pod is left.
async fn assert_nothing_runs(home: &Home<'_>, set: &Value) {
    assert_eq!(set["status"]["progress"]["runningPhase"], "", "{set:#}");
    assert!(set["status"]["progress"]["runningPhases"].as_array().is_none_or(Vec::is_empty), "{set:#}");
    let ours = |name: &str| name.starts_with("kanister-job-");
    eventually("no pod of it is left", async || {
        home.list("Pod").await.iter().all(|pod| !ours(pod.metadata.name.as_deref().unwrap_or_default()))
    })
    .await;
    eventually("no operation is open", async || has_no_open_operations(home).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_set_cancelled_without_a_server_has_no_running_phase_and_no_pod() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let action =
        json!({ "phases": [task("long", "sleep 1000"), task("never", "true")], "deferPhase": note("last", "last") });
    make(&home, "Blueprint", "bp", json!({ "actions": { "act": action } })).await;
    ask(&home, "set", "bp", &["act"]).await;
    // Before it could note that there is a pod.
    run_server_until_killed(&home, "phase.pod.after").await;
    assert_eq!(home.list("Pod").await.len(), 1);
    let cancelled = home.command(&["action", "cancel", "set"]).output().await.unwrap();
    assert!(cancelled.status.success(), "{cancelled:?}");
    let _next = home.server_with_short_lease(&[]);
    let set = ended(&home, "set", &mut ProgressWatch::default()).await;
    assert_eq!(states(&set), ["failed", "pending", "complete"], "{set:#}");
    assert!(message(&set).starts_with("Cancelled"), "{}", message(&set));
    assert_nothing_runs(&home, &set).await;
    assert!(home.find("ConfigMap", "last").await.is_some(), "its last phase has run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_template_object_fails_only_the_running_phase() {
    let bed = Bed::local_with_pods().await;
    for of_the_action in [true, false] {
        let home = bed.home(if of_the_action { "action" } else { "phase" }).await;
        make(&home, "Secret", "login", json!({ "stringData": { "password": "secret" } })).await;
        let reference = json!({ "kind": "Secret", "name": "login", "namespace": home.namespace });
        let mut second = task("second", "sleep 1000");
        let object = json!({ "kind": "Namespace", "name": home.namespace, "namespace": home.namespace });
        let mut action = json!({ "name": "act", "blueprint": "bp", "object": object });
        if of_the_action {
            action["secrets"] = json!({ "login": reference });
        } else {
            second["objects"] = json!({ "login": reference });
        }
        let phases = json!([task("first", &output("word", "kept")), second, task("third", "true")]);
        make(&home, "Blueprint", "bp", json!({ "actions": { "act": { "phases": phases } } })).await;
        make(&home, "ActionSet", "set", json!({ "spec": { "actions": [action] } })).await;
        run_server_until_killed(&home, "phase.pod.after:2").await;
        home.delete("Secret", "login").await;
        let _next = home.server_with_short_lease(&[]);
        let set = ended(&home, "set", &mut ProgressWatch::default()).await;
        assert_eq!(states(&set), ["complete", "failed", "pending"], "{set:#}");
        assert_eq!(set["status"]["actions"][0]["phases"][0]["output"], json!({ "word": "kept" }));
        let expected = format!("phase second: secret {}/login does not exist", home.namespace);
        assert!(message(&set).contains(&expected), "{}", message(&set));
        assert_nothing_runs(&home, &set).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_started_action_set_completes_without_its_target_and_blueprint() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    make(&home, "ConfigMap", "target", json!({ "data": { "colour": "blue" } })).await;
    let second = task("second", &output("colour", "{{ .Object.data.colour }}"));
    let phases = json!([task("first", "sleep 1"), second]);
    make(&home, "Blueprint", "bp", json!({ "actions": { "act": { "phases": phases } } })).await;
    let object = json!({ "apiVersion": "v1", "resource": "configmaps", "name": "target", "namespace": home.namespace });
    act_on(&home, object).await;
    run_server_until_killed(&home, "phase.pod.after").await;
    home.delete("Blueprint", "bp").await;
    home.delete("ConfigMap", "target").await;
    let _next = home.server_with_short_lease(&[]);
    let set = ended(&home, "set", &mut ProgressWatch::default()).await;
    assert_eq!(state(&set), "complete", "{}\n{}", message(&set), home.log());
    assert_eq!(set["status"]["actions"][0]["phases"][1]["output"], json!({ "colour": "blue" }));
    assert_nothing_runs(&home, &set).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_pod_is_gone_is_not_run_again() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    make(&home, "Blueprint", "bp", json!({ "actions": { "act": { "phases": [task("long", "sleep 1000")] } } })).await;
    ask(&home, "set", "bp", &["act"]).await;
    let mut first = home.server_with_short_lease(&[]);
    eventually("its pod runs", async || {
        let set = home.get("ActionSet", "set").await;
        set["status"]["actions"][0]["phases"][0]["progress"]["progressPercent"] == "33.33"
    })
    .await;
    first.kill().await.unwrap();
    let pod = home.list("Pod").await.remove(0).metadata.name.unwrap();
    home.delete("Pod", &pod).await;
    eventually("the pod is gone", async || home.find("Pod", &pod).await.is_none()).await;
    let _next = home.server_with_short_lease(&[]);
    let set = ended(&home, "set", &mut ProgressWatch::default()).await;
    assert_eq!(states(&set), ["failed"]);
    let expected = format!("pod {}/{pod} no longer exists", home.namespace);
    assert!(
        message(&set).contains("phase long: interrupted") && message(&set).contains(&expected),
        "{}",
        message(&set)
    );
    assert_nothing_runs(&home, &set).await;
}

/// A set as a Kanister leaves it that dies in the first phase.
async fn create_interrupted_set(home: &Home<'_>, name: &str, phase: &Value) {
    let object = json!({ "kind": "Namespace", "name": home.namespace, "namespace": home.namespace });
    let action = json!({ "name": "act", "blueprint": name, "object": object });
    let left = json!({ "name": phase["name"], "state": "running", "progress": { "progressPercent": "0" } });
    let status = json!({ "state": "running", "error": { "message": "" }, "progress": { "runningPhase": phase["name"] },
        "actions": [{ "name": "act", "blueprint": name, "object": object, "phases": [left] }] });
    make(home, "ActionSet", name, json!({ "spec": { "actions": [action] }, "status": status })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn phases_left_running_by_kanister_are_repeated_only_if_idempotent() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let template = json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [
        { "name": "web", "image": "any", "command": shell("exec sleep 10000") }] } });
    make(
        &home,
        "Deployment",
        "web",
        json!({ "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "web" } }, "template": template } }),
    )
    .await;
    let scale = json!({ "func": "ScaleWorkload", "name": "scale",
        "args": { "namespace": home.namespace, "name": "web", "kind": "Deployment", "replicas": 1 } });
    let phases = [("task", task("task", "true")), ("scale", scale), ("gone", task("gone", "true"))];
    for (name, phase) in &phases {
        if *name != "gone" {
            make(&home, "Blueprint", name, json!({ "actions": { "act": { "phases": [phase] } } })).await;
        }
        create_interrupted_set(&home, name, phase).await;
    }
    let _server = home.server();
    let set = ended(&home, "task", &mut ProgressWatch::default()).await;
    assert!(message(&set).contains("phase task: interrupted"), "{}", message(&set));
    let set = ended(&home, "scale", &mut ProgressWatch::default()).await;
    assert_eq!(state(&set), "complete", "{}\n{}", message(&set), home.log());
    assert_eq!(home.get("Deployment", "web").await["status"]["readyReplicas"], 1);
    let set = ended(&home, "gone", &mut ProgressWatch::default()).await;
    assert_eq!(states(&set), ["failed"], "its phases are not known: {set:#}");
    assert!(message(&set).contains("blueprint \"gone\" not found"), "{}", message(&set));
    assert_nothing_runs(&home, &set).await;
}
