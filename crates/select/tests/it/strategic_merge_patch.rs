use plimsoll_select::merge_patch;
use plimsoll_select::strategic_merge_patch::{Error, PatchSchema, merge};
use serde_json::{Value, json};

fn pod() -> PatchSchema {
    PatchSchema::kind("", "Pod").unwrap()
}

fn merged(target: Value, patch: Value) -> Value {
    merge(&json!({"spec": target}), &json!({"spec": patch}), pod()).unwrap()["spec"].take()
}

#[test]
fn containers_merge_by_name_and_their_lists_by_their_own_keys() {
    let target = json!({"containers": [
        {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}], "args": ["one", "two"]},
        {"name": "b", "image": "b:1"},
    ]});
    let patch =
        json!({"containers": [{"name": "a", "image": "a:2", "env": [{"name": "Y", "value": "2"}], "args": ["three"]}]});
    assert_eq!(
        merged(target, patch),
        json!({"containers": [
            {"name": "a", "image": "a:2", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}], "args": ["three"]},
            {"name": "b", "image": "b:1"},
        ]})
    );
}

#[test]
fn a_new_element_goes_before_the_servers_elements() {
    let target = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let patch = json!({"containers": [{"name": "c"}]});
    assert_eq!(merged(target, patch), json!({"containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}));
}

#[test]
fn tolerations_are_replaced_and_ports_merge_by_number() {
    let target = json!({"tolerations": [{"key": "a"}], "containers": [
        {"name": "a", "ports": [{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]}]});
    let patch = json!({"tolerations": [{"key": "b"}], "containers": [
        {"name": "a", "ports": [{"containerPort": 53, "name": "dns"}]}]});
    let result = merged(target, patch);
    assert_eq!(result["tolerations"], json!([{"key": "b"}]));
    assert_eq!(result["containers"][0]["ports"][0], json!({"containerPort": 53, "protocol": "TCP", "name": "dns"}));
}

#[test]
fn null_removes_and_directives_replace_or_delete() {
    let target = json!({"nodeName": "n", "nodeSelector": {"a": "1"}, "affinity": {"x": 1},
        "containers": [{"name": "a"}, {"name": "b"}]});
    let patch = json!({"nodeName": null, "nodeSelector": {"$patch": "replace", "b": "2"}, "affinity": {"$patch": "delete"},
        "containers": [{"name": "a", "$patch": "delete"}]});
    assert_eq!(
        merged(target, patch),
        json!({"nodeSelector": {"b": "2"}, "affinity": {}, "containers": [{"name": "b"}]})
    );
}

#[test]
fn a_replace_element_makes_the_rest_of_the_patch_the_whole_list() {
    let target = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let patch = json!({"containers": [{"name": "c"}, {"$patch": "replace"}]});
    assert_eq!(merged(target, patch), json!({"containers": [{"name": "c"}]}));
}

#[test]
fn set_element_order_sorts_listed_elements_and_keeps_the_servers() {
    let target = json!({"containers": [{"name": "a"}, {"name": "x"}, {"name": "b"}]});
    let patch = json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b", "image": "i"}]});
    assert_eq!(
        merged(target, patch),
        json!({"containers": [{"name": "x"}, {"name": "b", "image": "i"}, {"name": "a"}]})
    );
}

#[test]
fn finalizers_are_a_set_with_deletable_elements() {
    let target = json!({"metadata": {"finalizers": ["a", "b", "c"]}});
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"], "finalizers": ["c", "d"]}});
    let result = merge(&target, &patch, pod()).unwrap();
    assert_eq!(result, json!({"metadata": {"finalizers": ["a", "c", "d"]}}));
}

#[test]
fn retain_keys_switches_a_volume_from_one_source_to_another() {
    let target = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
    let patch = json!({"volumes": [{"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}]});
    assert_eq!(merged(target, patch), json!({"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}));
}

#[test]
fn owner_references_merge_by_uid_and_service_ports_by_port() {
    let target = json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}, "spec": {"ports": [{"port": 80, "name": "http"}]}});
    let patch = json!({"metadata": {"ownerReferences": [{"uid": "1", "controller": true}]}, "spec": {"ports": [{"port": 80, "nodePort": 30000}]}});
    let result = merge(&target, &patch, PatchSchema::kind("", "Service").unwrap()).unwrap();
    assert_eq!(result["metadata"]["ownerReferences"], json!([{"uid": "1", "name": "a", "controller": true}]));
    assert_eq!(result["spec"]["ports"], json!([{"port": 80, "name": "http", "nodePort": 30000}]));
}

#[test]
fn new_values_have_no_directives_and_nulls() {
    let patch = json!({"containers": [{"name": "a", "image": null, "$patch": "merge"}, {"name": "b", "$patch": "delete"}],
        "$setElementOrder/volumes": [{"name": "v"}], "securityContext": {"runAsUser": null, "fsGroup": 1}});
    assert_eq!(merged(json!({}), patch), json!({"containers": [{"name": "a"}], "securityContext": {"fsGroup": 1}}));
}

#[test]
fn invalid_patches_are_errors_with_a_cause() {
    let target = json!({"spec": {"containers": [{"name": "a"}]}});
    for (patch, text) in [
        (json!([]), "a strategic merge patch must be an object, not a list"),
        (json!({"spec": {"containers": [{"image": "x"}]}}), "element of .spec.containers has no merge key \"name\""),
        (json!({"spec": {"$patch": "explode"}}), "unknown $patch directive \"explode\" at .spec"),
        (json!({"spec": {"containers": ["a"]}}), "elements of .spec.containers are not all of one type"),
        (
            json!({"spec": {"$retainKeys": ["a"], "b": 1}}),
            "malformed $retainKeys at .spec: the patch sets a field that is not listed",
        ),
        (json!({"spec": {"$setElementOrder/containers": 1}}), "malformed $setElementOrder at .spec: must be a list"),
    ] {
        let error = merge(&target, &patch, pod()).unwrap_err();
        assert_eq!(error.to_string(), text);
        assert_eq!((error.reason(), error.is_retryable()), ("InvalidStrategicPatch", false));
        assert!(!matches!(error, Error::MalformedDirective { directive: "", .. }));
    }
}

#[test]
fn custom_kinds_have_no_patch_schema_and_built_in_ones_do() {
    assert!(PatchSchema::kind("example.com", "Widget").is_none());
    assert!(PatchSchema::kind("", "ConfigMap").is_some());
    assert!(PatchSchema::of(&json!({"apiVersion": "apps/v1", "kind": "Deployment"})).is_some());
}

#[test]
fn a_merge_patch_follows_the_examples_of_the_rfc() {
    for (target, patch, result) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({"a": "b"}), json!(["c"]), json!(["c"])),
        (json!({"a": "foo"}), json!(null), json!(null)),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        assert_eq!(merge_patch::apply(&target, &patch), result);
    }
}
