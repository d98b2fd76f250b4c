use std::collections::BTreeMap;

use plimsoll_select::resource_modifiers::ResourceModifiers;
use serde_json::{Value, json};

fn claim() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "demo", "labels": {"app": "db"}, "annotations": {"a": "b"}},
        "spec": {"storageClassName": "premium", "replicas": 3, "on": true},
    })
}

fn rule(conditions: &str, patches: &str) -> String {
    format!("version: v1\nresourceModifierRules:\n- conditions: {conditions}\n  {patches}\n")
}

fn apply(text: &str, mut object: Value) -> (Value, usize) {
    let errors = ResourceModifiers::parse(text).unwrap().apply(&mut object, "persistentvolumeclaims");
    (object, errors.len())
}

const SET: &str = "patches: [{operation: replace, path: /spec/storageClassName, value: standard}]";

#[test]
fn conditions_select_the_objects_of_a_rule() {
    for (conditions, expected) in [
        ("{groupResource: persistentvolumeclaims}", true),
        ("{groupResource: '*'}", true),
        ("{groupResource: 'persistent*'}", true),
        ("{groupResource: pods}", false),
        ("{groupResource: persistentvolumeclaims, namespaces: [demo]}", true),
        ("{groupResource: persistentvolumeclaims, namespaces: ['de*']}", true),
        ("{groupResource: persistentvolumeclaims, namespaces: [other]}", false),
        ("{groupResource: persistentvolumeclaims, resourceNameRegex: '^da.*$'}", true),
        ("{groupResource: persistentvolumeclaims, resourceNameRegex: at}", true),
        ("{groupResource: persistentvolumeclaims, resourceNameRegex: '^x'}", false),
        ("{groupResource: persistentvolumeclaims, labelSelector: {matchLabels: {app: db}}}", true),
        ("{groupResource: persistentvolumeclaims, labelSelector: {matchLabels: {app: web}}}", false),
        ("{groupResource: persistentvolumeclaims, matches: [{path: /spec/storageClassName, value: premium}]}", true),
        ("{groupResource: persistentvolumeclaims, matches: [{path: /spec/storageClassName, value: other}]}", false),
        ("{groupResource: persistentvolumeclaims, matches: [{path: /spec/replicas, value: '3'}]}", true),
        ("{groupResource: persistentvolumeclaims, matches: [{path: /spec/on, value: 'true'}]}", true),
        ("{groupResource: persistentvolumeclaims, matches: [{path: /spec/missing, value: x}]}", false),
    ] {
        let (object, errors) = apply(&rule(conditions, SET), claim());
        assert_eq!((object["spec"]["storageClassName"] == "standard", errors), (expected, 0), "{conditions}");
    }
}

#[test]
fn a_pattern_for_a_resource_stops_at_dots() {
    let modifiers = ResourceModifiers::parse(&rule("{groupResource: '*.apps'}", SET)).unwrap();
    let mut object = claim();
    modifiers.apply(&mut object, "deployments.apps");
    assert_eq!(object["spec"]["storageClassName"], "standard");
    let mut object = claim();
    ResourceModifiers::parse(&rule("{groupResource: '*'}", SET)).unwrap().apply(&mut object, "deployments.apps");
    assert_eq!(object["spec"]["storageClassName"], "premium");
}

#[test]
fn values_of_json_patches_take_the_type_they_look_like() {
    for (value, expected) in [
        ("standard", json!("standard")),
        ("''", json!("")),
        ("'5'", json!(5)),
        ("'-1.5'", json!(-1.5)),
        ("'true'", json!(true)),
        ("'null'", json!(null)),
        ("'\"5\"'", json!("5")),
        ("'\"true\"'", json!("true")),
        ("'{\"a\": 1}'", json!({"a": 1})),
        ("'[1, \"x\"]'", json!([1, "x"])),
        ("'1.2.3'", json!("1.2.3")),
    ] {
        let patches = format!("patches: [{{operation: add, path: /spec/new, value: {value}}}]");
        let (object, errors) = apply(&rule("{groupResource: persistentvolumeclaims}", &patches), claim());
        assert_eq!((&object["spec"]["new"], errors), (&expected, 0), "{value}");
    }
}

#[test]
fn every_operation_of_a_json_patch_works_and_a_failing_test_changes_nothing() {
    let all = rule(
        "{groupResource: persistentvolumeclaims}",
        "patches:
  - {operation: test, path: /spec/storageClassName, value: premium}
  - {operation: copy, from: /spec/storageClassName, path: /spec/copied}
  - {operation: move, from: /spec/replicas, path: /spec/moved}
  - {operation: remove, path: /metadata/annotations}",
    );
    let (object, errors) = apply(&all, claim());
    assert_eq!((&object["spec"]["copied"], &object["spec"]["moved"], errors), (&json!("premium"), &json!(3), 0));
    assert_eq!(object["metadata"].get("annotations"), None);
    let test = rule(
        "{groupResource: persistentvolumeclaims}",
        "patches: [{operation: remove, path: /spec/on}, {operation: test, path: /spec/storageClassName, value: other}]",
    );
    assert_eq!(apply(&test, claim()), (claim(), 0));
}

#[test]
fn a_patch_that_does_not_apply_is_an_error_that_names_rule_and_object() {
    let text = rule("{groupResource: persistentvolumeclaims}", "patches: [{operation: remove, path: /spec/missing}]");
    let mut object = claim();
    let errors = ResourceModifiers::parse(&text).unwrap().apply(&mut object, "persistentvolumeclaims");
    assert_eq!(object, claim());
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0]
            .to_string()
            .starts_with("failed to apply resource modifier rule 1 to PersistentVolumeClaim demo/data: "),
        "{}",
        errors[0]
    );
}

#[test]
fn merge_and_strategic_patches_apply_in_order() {
    let merge = rule(
        "{groupResource: persistentvolumeclaims}",
        "mergePatches:
  - patchData: |
      metadata:
        annotations:
          a: null
          c: d
  - patchData: '{\"spec\": {\"replicas\": 5}}'",
    );
    let (object, errors) = apply(&merge, claim());
    assert_eq!(
        (&object["metadata"]["annotations"], &object["spec"]["replicas"], errors),
        (&json!({"c": "d"}), &json!(5), 0)
    );

    let strategic = rule(
        "{groupResource: persistentvolumeclaims}",
        "strategicPatches: [{patchData: '{\"spec\": {\"containers\": [{\"name\": \"a\", \"image\": \"new\"}]}}'}]",
    );
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "old"}, {"name": "b"}]}});
    let (object, errors) = apply(&strategic, pod);
    assert_eq!((&object["spec"]["containers"], errors), (&json!([{"name": "a", "image": "new"}, {"name": "b"}]), 0));
    let custom = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    assert_eq!(apply(&strategic, custom.clone()), (custom, 1));
}

#[test]
fn every_rule_matches_the_original_object() {
    let text = "version: v1
resourceModifierRules:
- conditions: {groupResource: persistentvolumeclaims, matches: [{path: /spec/storageClassName, value: premium}]}
  patches: [{operation: replace, path: /spec/storageClassName, value: standard}]
- conditions: {groupResource: persistentvolumeclaims, matches: [{path: /spec/storageClassName, value: standard}]}
  patches: [{operation: replace, path: /spec/storageClassName, value: wrong}]
- conditions: {groupResource: persistentvolumeclaims, matches: [{path: /spec/storageClassName, value: premium}]}
  mergePatches: [{patchData: '{\"spec\": {\"third\": true}}'}]
";
    let (object, errors) = apply(text, claim());
    assert_eq!(
        (&object["spec"]["storageClassName"], &object["spec"]["third"], errors),
        (&json!("standard"), &json!(true), 0)
    );
}

#[test]
fn misspelt_and_invalid_modifiers_are_errors() {
    let good = "{groupResource: pods}";
    for text in [
        String::new(),
        "version: v2\nresourceModifierRules: [{conditions: {groupResource: pods}, mergePatches: [{patchData: '{}'}]}]"
            .into(),
        "version: v1\nresourceModifierRules: []".into(),
        "version: v1\nrules: []".into(),
        rule("{groupResource: ''}", SET),
        rule("{}", SET),
        rule("{groupResource: pods, namespace: x}", SET),
        rule("{groupResource: pods, resourceNameRegex: '('}", SET),
        rule("{groupResource: '[x'}", SET),
        rule("{groupResource: pods, labelSelector: {matchExpressions: [{key: a, operator: Odd}]}}", SET),
        rule("{groupResource: pods, matches: [{value: x}]}", SET),
        rule(good, "patches: []"),
        rule(good, "patches: [{operation: explode, path: /a}]"),
        rule(good, "patches: [{path: /a}]"),
        rule(good, "patches: [{operation: add, value: x}]"),
        rule(good, "patches: [{operation: add, path: /a, value: '{'}]"),
        rule(good, "patches: [{operation: add, path: /a, valeu: x}]"),
        rule(good, "mergePatches: [{patchData: '{'}]"),
        rule(good, "patches: [{operation: remove, path: /a}]\n  mergePatches: [{patchData: '{}'}]"),
    ] {
        let error = ResourceModifiers::parse(&text).map(|_| ()).unwrap_err();
        assert_eq!(error.reason(), "InvalidResourceModifiers", "{text}");
    }
    let two = BTreeMap::from([("a".to_owned(), rule(good, SET)), ("b".to_owned(), rule(good, SET))]);
    assert!(ResourceModifiers::from_config_map(&two).is_err());
    assert!(ResourceModifiers::from_config_map(&BTreeMap::from([("any".to_owned(), rule(good, SET))])).is_ok());
    assert!(ResourceModifiers::parse(&rule(good, SET).replace("v1", "V1")).is_ok());
}
