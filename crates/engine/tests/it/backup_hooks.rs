//! Which backup hooks a pod has.

use std::time::Duration;

use plimsoll_api::velero::v1::BackupHooks;
use plimsoll_engine::hooks::HookRules;
use plimsoll_select::resources::DiscoveredResources;
use serde_json::{Value, json};

fn pod(annotations: &Value) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "db-0", "labels": {"app": "db"}, "annotations": annotations},
        "spec": {"containers": [{"name": "db"}, {"name": "side"}]},
    })
}

fn rules(spec: &Value) -> HookRules {
    let hooks: BackupHooks = serde_json::from_value(json!({"resources": [spec]})).unwrap();
    HookRules::compile(Some(&hooks), &DiscoveredResources::new(Vec::new())).unwrap()
}

#[test]
fn annotation_hooks_default_to_the_first_container_and_30_seconds() {
    let pod = pod(&json!({"pre.hook.backup.velero.io/command": "[\"/sbin/fsfreeze\", \"--freeze\", \"/data\"]"}));
    let hooks = HookRules::default().for_pod(&pod);
    let [hook] = &hooks.pre[..] else { panic!("{hooks:?}") };
    assert_eq!(hook.command.command, ["/sbin/fsfreeze", "--freeze", "/data"]);
    assert_eq!((hook.command.container.as_str(), hook.command.timeout), ("db", Duration::from_secs(30)));
    assert!(hook.fails_pod && hooks.post.is_empty());
}

#[test]
fn a_command_that_is_not_a_json_array_is_one_word() {
    for text in ["/bin/sync it", "[not json"] {
        let pod = pod(&json!({"pre.hook.backup.velero.io/command": text}));
        assert_eq!(HookRules::default().for_pod(&pod).pre[0].command.command, [text]);
    }
}

#[test]
fn all_annotations_apply_and_an_invalid_timeout_is_a_warning() {
    let pod = pod(&json!({
        "post.hook.backup.velero.io/command": "sync",
        "post.hook.backup.velero.io/container": "side",
        "post.hook.backup.velero.io/on-error": "Continue",
        "post.hook.backup.velero.io/timeout": "soon",
    }));
    let hooks = HookRules::default().for_pod(&pod);
    assert!(!hooks.post[0].fails_pod && hooks.post[0].command.container == "side");
    assert_eq!(hooks.post[0].command.timeout, Duration::from_secs(30));
    assert!(hooks.warnings[0].starts_with("annotation post.hook.backup.velero.io/timeout"), "{:?}", hooks.warnings);
}

#[test]
fn annotations_replace_the_hooks_of_the_spec_of_their_stage() {
    let rules = rules(&json!({
        "name": "freeze",
        "pre": [{"exec": {"command": ["spec-pre"]}}],
        "post": [{"exec": {"command": ["spec-post"], "timeout": "5s"}}],
    }));
    let hooks = rules.for_pod(&pod(&json!({"hook.backup.velero.io/command": "old-style"})));
    assert_eq!(hooks.pre[0].command.command, ["old-style"]);
    assert_eq!((hooks.post[0].name.as_str(), hooks.post[0].command.timeout), ("freeze", Duration::from_secs(5)));
}

#[test]
fn hooks_of_the_spec_match_by_namespace_resource_and_labels() {
    let hook = json!([{"exec": {"command": ["x"]}}]);
    let matches = |spec: Value| {
        let mut spec = spec;
        spec["pre"] = hook.clone();
        !rules(&spec).for_pod(&pod(&json!({}))).pre.is_empty()
    };
    assert!(matches(json!({})));
    assert!(matches(json!({"includedNamespaces": ["sh*"], "labelSelector": {"matchLabels": {"app": "db"}}})));
    assert!(!matches(json!({"excludedNamespaces": ["shop"]})));
    assert!(!matches(json!({"includedResources": ["deployments.apps"]})));
    assert!(!matches(json!({"labelSelector": {"matchLabels": {"app": "web"}}})));
}
