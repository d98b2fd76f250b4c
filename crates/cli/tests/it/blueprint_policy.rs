//! The policy of an installation: a real API server refuses Blueprints that cannot run, and says why.

use std::path::Path;

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use plimsoll_testkit::require;
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, plimsoll};
use crate::planted::{create, objects};

/// The policy and its binding, as `plimsoll install` applies them.
async fn policy(namespace: &str) -> Vec<Value> {
    let arguments = ["install", "--dry-run", "--no-crds", "-o", "json", "--namespace", namespace];
    let output = plimsoll().args(arguments).output().await.unwrap();
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is_ours = |object: &&Value| {
        object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("plimsoll-blueprints-"))
    };
    all["items"].as_array().unwrap().iter().filter(is_ours).cloned().collect()
}

/// What the API server says to a blueprint, without creating it.
async fn try_create(blueprints: &Api<DynamicObject>, mut blueprint: Value) -> Result<(), String> {
    blueprint["apiVersion"] = json!("cr.kanister.io/v1alpha1");
    blueprint["kind"] = json!("Blueprint");
    blueprint["metadata"] = json!({ "name": "tried" });
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match blueprints.create(&dry, &serde_json::from_value(blueprint).unwrap()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it takes what json! makes")]
fn blueprint(phases: Value) -> Value {
    json!({ "actions": { "backup": { "phases": phases } } })
}

#[expect(clippy::needless_pass_by_value, reason = "it takes what json! makes")]
fn task(name: &str, more: Value) -> Value {
    let mut args = json!({ "image": "any", "command": ["true"] });
    args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "name": name, "func": "KubeTask", "args": args })
}

/// Blueprints that cannot run, and what is said about them.
fn refused() -> Vec<(Value, &'static str)> {
    let mut named_twice = blueprint(json!([task("a", json!({}))]));
    named_twice["actions"]["backup"]["deferPhase"] = task("a", json!({}));
    vec![
        (
            blueprint(json!([{ "name": "a", "func": "KubeTsk", "args": {} }])),
            "action backup, phase a: unknown function KubeTsk",
        ),
        (blueprint(json!([{ "name": "a", "args": {} }])), "action backup, phase a: func is required"),
        (
            blueprint(json!([{ "name": "a", "func": "KubeTask", "args": { "image": "any" } }])),
            "action backup, phase a: KubeTask requires the argument command",
        ),
        (
            blueprint(json!([{ "name": "a", "func": "Wait" }])),
            "action backup, phase a: Wait requires the argument timeout",
        ),
        (
            blueprint(json!([task("a", json!({ "imgae": "x" }))])),
            "action backup, phase a: KubeTask has no argument imgae",
        ),
        (
            blueprint(json!([task("a", json!({ "namespace": null }))])),
            "action backup, phase a: argument namespace is null",
        ),
        (
            blueprint(json!([task("a", json!({ "podLabels": { "app": 1 } }))])),
            "action backup, phase a: argument podLabels is not a map of strings",
        ),
        (
            blueprint(json!([task("a", json!({ "podLabels": "app" }))])),
            "action backup, phase a: argument podLabels is not a map of strings",
        ),
        (named_twice, "action backup, phase a: another phase of the action has the same name"),
    ]
}

/// Blueprints that can run, and those of Kanister where they are.
fn accepted() -> Vec<(String, Value)> {
    let same_name = json!({ "actions": { "backup": { "phases": [task("a", json!({ "podLabels": { "app": "x" } }))] },
        "restore": { "phases": [task("a", json!({ "podOverride": { "containers": [] } }))], "deferPhase": task("", json!({})) } } });
    let mut all = vec![
        ("a name in two actions".to_owned(), same_name),
        (
            "a function of Amazon RDS".to_owned(),
            blueprint(json!([{ "name": "a", "func": "CreateRDSSnapshot", "args": { "instanceID": "x" } }])),
        ),
        ("no actions".to_owned(), json!({})),
    ];
    for entry in std::env::var_os("PLIMSOLL_BLUEPRINTS").into_iter().flat_map(|path| std::fs::read_dir(path).unwrap()) {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            all.push((path.display().to_string(), official(&path)));
        }
    }
    all
}

fn official(path: &Path) -> Value {
    let blueprint: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    json!({ "actions": blueprint["actions"] })
}

async fn check_verdicts(home: &Home<'_>) {
    let blueprints = home.api("Blueprint");
    for (blueprint, expected) in refused() {
        let message = try_create(&blueprints, blueprint).await.expect_err(expected);
        assert!(message.contains(expected), "{expected:?} is not in {message:?}");
    }
    for (name, blueprint) in accepted() {
        assert_eq!(try_create(&blueprints, blueprint).await, Ok(()), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_refuses_blueprints_that_cannot_run_and_names_action_phase_and_argument() {
    let bed = Bed::real(require!(plimsoll_testkit::cluster().await)).await;
    let home = bed.home("home").await;
    let other = bed.home("other").await;
    let policy = policy(&home.namespace).await;
    assert_eq!(policy.len(), 2, "{policy:#?}");
    for object in &policy {
        create(&bed, object).await;
    }
    let wrong = || refused().remove(0).0;
    let blueprints = home.api("Blueprint");
    eventually("the policy is enforced", async || try_create(&blueprints, wrong()).await.is_err()).await;
    check_verdicts(&home).await;
    assert_eq!(try_create(&other.api("Blueprint"), wrong()).await, Ok(()), "other namespaces are not ours");
    for object in policy.iter().rev() {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let api = objects(&bed, "admissionregistration.k8s.io/v1", kind, None);
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }
    bed.clear().await;
}
