//! Which hooks of a Restore a pod has.

#![expect(clippy::needless_pass_by_value, reason = "literals read better without a reference")]

use std::time::Duration;

use plimsoll_engine::Error;
use plimsoll_engine::restore::hooks::{ExecHook, RestoreHooks};
use serde_json::{Value, json};

fn hooks(spec: Value) -> Result<RestoreHooks, Error> {
    RestoreHooks::new(&serde_json::from_value(spec).unwrap())
}

fn pod(namespace: &str, labels: Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": "p", "labels": labels}, "spec": {"containers": [{"name": "main"}, {"name": "side"}]}})
}

fn container(name: &str) -> Value {
    json!({"name": name, "image": "busybox", "command": ["true"]})
}

#[test]
fn hooks_of_the_restore_match_by_target_namespace_and_labels() {
    let hooks = hooks(json!({"namespaceMapping": {"old": "new"}, "hooks": {"resources": [
        {"name": "a", "includedNamespaces": ["new"], "postHooks": [{"init": {"initContainers": [container("a")]}}]},
        {"name": "b", "labelSelector": {"matchLabels": {"app": "x"}}, "postHooks": [{"init": {"initContainers": [container("b")]}}]},
        {"name": "c", "excludedNamespaces": ["new"], "postHooks": [{"init": {"initContainers": [container("c")]}}]}]}}))
    .unwrap();
    let names = |pod: &Value| -> Vec<String> {
        let containers = hooks.init_containers(pod).unwrap();
        containers.iter().map(|container| container["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&pod("old", json!({"app": "x"}))), ["a", "b"]);
    assert_eq!(names(&pod("other", json!({}))), ["c"]);
}

#[test]
fn a_command_defaults_to_the_first_container() {
    let hooks = hooks(json!({"hooks": {"resources": [{"name": "warm", "postHooks": [
        {"exec": {"command": ["warm"]}},
        {"exec": {"command": ["x"], "container": "side", "onError": "Fail", "execTimeout": "5s", "waitTimeout": "1m", "waitForReady": true}}]}]}}))
    .unwrap();
    let commands = hooks.commands(&pod("ns", json!({})));
    assert_eq!(
        (commands[0].container.as_str(), commands[0].exec_timeout, commands[0].wait_timeout),
        ("main", Duration::from_secs(30), None)
    );
    assert_eq!(
        commands[1],
        ExecHook {
            name: "warm".into(),
            container: "side".into(),
            command: vec!["x".into()],
            fails: true,
            exec_timeout: Duration::from_secs(5),
            wait_timeout: Some(Duration::from_mins(1)),
            wait_for_ready: true,
        }
    );
}

#[test]
fn invalid_hooks_are_errors_with_their_name() {
    for (post, cause) in [
        (json!({"init": {"initContainers": [{"name": "x"}]}}), "an init container needs name, image and command"),
        (json!({"exec": {"container": "x"}}), "an exec hook has no command"),
    ] {
        let error = hooks(json!({"hooks": {"resources": [{"name": "bad", "postHooks": [post]}]}})).unwrap_err();
        assert_eq!(error.to_string(), format!("spec.hooks.resources: hook \"bad\": {cause}"));
    }
}
