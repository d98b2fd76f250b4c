use plimsoll_select::resource_policies::ResourcePolicies;
use plimsoll_select::selection::{ExclusionReason, FilterDecision, Filters, Item, NamespaceInclusion, Selection};
use serde_json::{Value, json};

use crate::resource_order::discovered;

fn filters(spec: Value) -> Filters {
    serde_json::from_value(spec).unwrap()
}

fn backup(spec: Value) -> Selection {
    Selection::for_backup(&filters(spec), None, &["ns-1".to_owned(), "ns-2".to_owned()], &discovered()).unwrap()
}

fn restore(spec: Value) -> Selection {
    Selection::for_restore(&filters(spec), None, &discovered()).unwrap()
}

fn item<'a>(group_resource: &'a str, namespace: Option<&'a str>, name: &'a str, labels: &'a Value) -> Item<'a> {
    Item { group_resource, kind: "", namespace, name, labels, deleting: false }
}

const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const STORAGE_CLASSES: &str = "storageclasses.storage.k8s.io";

/// Spec, and which of these four are selected: pods, deployments, cluster roles, namespaces.
#[test]
fn resources_of_a_backup_are_filtered_as_in_velero() {
    for (spec, expected) in [
        (json!({}), [true, true, true, true]),
        // Unscoped filters.
        (json!({"includedNamespaces": ["ns-1"]}), [true, true, false, true]),
        (json!({"includedNamespaces": ["ns-1"], "includeClusterResources": true}), [true, true, true, true]),
        (json!({"includeClusterResources": false}), [true, true, false, false]),
        (json!({"excludedNamespaces": ["ns-2"], "includedResources": ["*"]}), [true, true, false, true]),
        (json!({"includedResources": ["po"]}), [true, false, false, false]),
        (json!({"includedResources": ["pods", "clusterroles"]}), [true, false, true, false]),
        (
            json!({"includedResources": ["pods", "clusterroles"], "includedNamespaces": ["ns-1"]}),
            [true, false, false, false],
        ),
        (
            json!({"includedResources": ["pods", "clusterroles"], "includedNamespaces": ["ns-1"], "includeClusterResources": true}),
            [true, false, true, false],
        ),
        (json!({"excludedResources": ["deployments"]}), [true, false, true, true]),
        (json!({"excludedResources": ["deployments.extensions"]}), [true, true, true, true]),
        (json!({"includedResources": ["unresolvable"]}), [false, false, false, false]),
        (json!({"includedResources": ["deploy*"]}), [false, true, false, false]),
        // Patterns that match every namespace select the whole cluster.
        (json!({"includedNamespaces": ["ns-*"], "excludedResources": ["secrets"]}), [true, true, true, true]),
        (json!({"includedNamespaces": ["ns-1", "ns-2"]}), [true, true, true, true]),
        // Scoped filters.
        (json!({"includedClusterScopedResources": ["clusterroles"]}), [true, true, true, true]),
        (json!({"includedClusterScopedResources": ["storageclasses"]}), [true, true, false, true]),
        (json!({"includedClusterScopedResources": ["*"], "includedNamespaces": ["ns-1"]}), [true, true, true, true]),
        (json!({"excludedClusterScopedResources": ["*"]}), [true, true, false, false]),
        (json!({"excludedClusterScopedResources": ["storageclasses"]}), [true, true, false, true]),
        (json!({"includedNamespaceScopedResources": ["pods"]}), [true, false, false, true]),
        (json!({"excludedNamespaceScopedResources": ["pods"]}), [false, true, false, true]),
        (
            json!({"excludedNamespaceScopedResources": ["*"], "includedClusterScopedResources": ["clusterroles"]}),
            [false, false, true, true],
        ),
        // A resource in the list of the other scope is ignored.
        (json!({"includedNamespaceScopedResources": ["clusterroles", "pods"]}), [true, false, false, true]),
    ] {
        let selection = backup(spec.clone());
        let collected = [
            selection.resource("pods", true).is_included(),
            selection.resource("deployments.apps", true).is_included(),
            selection.resource(CLUSTER_ROLES, false).is_included(),
            selection.resource("namespaces", false).is_included(),
        ];
        assert_eq!(collected, expected, "{spec}");
    }
}

#[test]
fn volume_snapshots_are_selected_only_as_additional_items() {
    for spec in [json!({}), json!({"includedResources": ["*"]}), json!({"includedClusterScopedResources": ["*"]})] {
        let selection = backup(spec);
        assert!(!selection.resource("volumesnapshots.snapshot.storage.k8s.io", true).is_included());
        assert!(!selection.resource("volumesnapshotcontents.snapshot.storage.k8s.io", false).is_included());
    }
}

#[test]
fn objects_of_a_backup_are_filtered_by_namespace_and_labels() {
    let selection = backup(json!({
        "includedNamespaces": ["ns-*"], "excludedNamespaces": ["ns-2"], "labelSelector": {"matchLabels": {"app": "web"}},
    }));
    let (web, db) = (json!({"app": "web"}), json!({"app": "db"}));
    let marked = json!({"app": "web", "velero.io/exclude-from-backup": "true"});
    let unmarked = json!({"app": "web", "velero.io/exclude-from-backup": "false"});
    for (namespace, labels, expected) in [
        ("ns-1", &web, FilterDecision::Include),
        ("ns-1", &unmarked, FilterDecision::Include),
        ("ns-1", &db, FilterDecision::Exclude(ExclusionReason::Labels)),
        ("ns-1", &Value::Null, FilterDecision::Exclude(ExclusionReason::Labels)),
        ("ns-2", &web, FilterDecision::Exclude(ExclusionReason::Namespace)),
        ("other", &web, FilterDecision::Exclude(ExclusionReason::Namespace)),
        ("ns-1", &marked, FilterDecision::Exclude(ExclusionReason::ExcludeLabel)),
    ] {
        assert_eq!(selection.item(&item("pods", Some(namespace), "p", labels)), expected, "{namespace} {labels}");
    }
    let deleting = Item { deleting: true, ..item("pods", Some("ns-1"), "p", &web) };
    assert_eq!(selection.item(&deleting), FilterDecision::Exclude(ExclusionReason::Deleting));
}

#[test]
fn one_matching_or_selector_is_enough() {
    let selection = backup(json!({"orLabelSelectors": [{"matchLabels": {"a": "1"}}, {"matchLabels": {"b": "2"}}]}));
    for (labels, expected) in [(json!({"a": "1"}), true), (json!({"b": "2"}), true), (json!({"a": "2"}), false)] {
        assert_eq!(selection.item(&item("pods", Some("ns-1"), "p", &labels)).is_included(), expected, "{labels}");
    }
}

#[test]
fn a_namespace_is_included_by_name_by_label_or_for_its_objects() {
    let web = json!({"app": "web"});
    let selector = json!({"matchLabels": {"app": "web"}});
    for (spec, name, labels, active, expected) in [
        (json!({}), "ns-1", Value::Null, true, NamespaceInclusion::Always),
        (json!({}), "ns-1", Value::Null, false, NamespaceInclusion::WithItems),
        (json!({"includedNamespaces": ["ns-1"]}), "ns-2", Value::Null, true, NamespaceInclusion::WithItems),
        (json!({"labelSelector": selector}), "ns-1", Value::Null, true, NamespaceInclusion::WithItems),
        (json!({"labelSelector": selector}), "ns-1", web.clone(), true, NamespaceInclusion::Always),
        (json!({"orLabelSelectors": [selector]}), "ns-1", web.clone(), true, NamespaceInclusion::Always),
        (
            json!({"labelSelector": selector, "includedNamespaces": ["ns-1"]}),
            "ns-1",
            Value::Null,
            true,
            NamespaceInclusion::Always,
        ),
        (json!({}), "ns-1", json!({"velero.io/exclude-from-backup": "true"}), true, NamespaceInclusion::Never),
        (json!({"includeClusterResources": false}), "ns-1", Value::Null, true, NamespaceInclusion::Never),
        (json!({"excludedResources": ["namespaces"]}), "ns-1", Value::Null, true, NamespaceInclusion::Never),
    ] {
        assert_eq!(backup(spec.clone()).namespace_object(name, &labels, active), expected, "{spec} {name} {labels}");
    }
}

#[test]
fn additional_items_are_included_unless_explicitly_excluded() {
    let none = Value::Null;
    for (spec, group_resource, namespace, expected) in [
        (json!({"includedNamespaces": ["ns-1"]}), "persistentvolumes", None, true),
        (json!({"includedNamespaces": ["ns-1"]}), "pods", Some("ns-2"), false),
        (json!({"includeClusterResources": false}), "persistentvolumes", None, false),
        (json!({"excludedResources": ["pv"]}), "persistentvolumes", None, false),
        (json!({"includedResources": ["pods"]}), "persistentvolumes", None, false),
        (json!({"includedResources": ["pods"], "includeClusterResources": true}), "persistentvolumes", None, true),
        (json!({"includedNamespaceScopedResources": ["pods"]}), "persistentvolumes", None, true),
        (json!({"excludedClusterScopedResources": ["*"]}), "persistentvolumes", None, false),
        (json!({"includedNamespaceScopedResources": ["pods"]}), "persistentvolumeclaims", Some("ns-1"), false),
        (json!({"labelSelector": {"matchLabels": {"a": "b"}}}), "persistentvolumeclaims", Some("ns-1"), true),
        (json!({"excludedResources": ["namespaces"]}), "namespaces", None, true),
    ] {
        let verdict = backup(spec.clone()).additional(&item(group_resource, namespace, "x", &none));
        assert_eq!(verdict.is_included(), expected, "{spec} {group_resource}");
    }
}

/// Spec, and which are restored: pods, cluster roles.
#[test]
fn resources_of_a_restore_are_filtered_as_in_velero() {
    for (spec, expected) in [
        (json!({}), [true, true]),
        (json!({"includedNamespaces": ["ns-1"]}), [true, false]),
        (json!({"includedNamespaces": ["*"]}), [true, true]),
        (json!({"includedNamespaces": ["ns-1"], "includeClusterResources": true}), [true, true]),
        (json!({"includeClusterResources": false}), [true, false]),
        (json!({"includedResources": ["pods"]}), [true, false]),
        (json!({"excludedResources": ["pods"]}), [false, true]),
    ] {
        let selection = restore(spec.clone());
        let restored =
            [selection.resource("pods", true).is_included(), selection.resource(CLUSTER_ROLES, false).is_included()];
        assert_eq!(restored, expected, "{spec}");
    }
}

#[test]
fn some_resources_are_never_restored_and_one_always_is() {
    let selection = restore(json!({"includedResources": ["*"]}));
    for never in [
        "nodes",
        "events",
        "events.events.k8s.io",
        "backups.velero.io",
        "restores.velero.io",
        "volumepluginbackups.velero.io",
    ] {
        assert_eq!(selection.resource(never, true), FilterDecision::Exclude(ExclusionReason::NonRestorable), "{never}");
    }
    let none = Value::Null;
    let narrow = restore(
        json!({"includedNamespaces": ["ns-1"], "includedResources": ["pods"], "labelSelector": {"matchLabels": {"a": "b"}}}),
    );
    assert!(narrow.resource("datauploads.velero.io", true).is_included());
    assert!(narrow.item(&item("datauploads.velero.io", Some("velero"), "x", &none)).is_included());
}

#[test]
fn a_restore_ignores_the_exclude_label_and_restores_only_selected_namespaces() {
    let marked = json!({"velero.io/exclude-from-backup": "true"});
    assert!(restore(json!({})).item(&item("pods", Some("ns-1"), "p", &marked)).is_included());
    let selection = restore(json!({"excludedNamespaces": ["ns-2"], "includeClusterResources": true}));
    assert!(selection.item(&item("namespaces", None, "ns-1", &marked)).is_included());
    assert_eq!(
        selection.item(&item("namespaces", None, "ns-2", &marked)),
        FilterDecision::Exclude(ExclusionReason::Namespace)
    );
}

#[test]
fn contradictory_filters_are_errors_that_name_the_field() {
    for (spec, text) in [
        (
            json!({"includedResources": ["pods"], "includedClusterScopedResources": ["pv"]}),
            "invalid resource filters: included resources, excluded resources and include cluster resources cannot be used together with cluster-scoped and namespace-scoped filters",
        ),
        (
            json!({"labelSelector": {}, "orLabelSelectors": [{}]}),
            "invalid label selectors: labelSelector and orLabelSelectors cannot be used together",
        ),
        (
            json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
            "invalid label selectors: invalid label selector at \"a Near\": the operator must be In, NotIn, Exists or DoesNotExist",
        ),
        (
            json!({"excludedNamespaces": ["*"]}),
            "invalid included/excluded namespaces: excludes list cannot contain '*'",
        ),
    ] {
        let error = Selection::for_backup(&filters(spec), None, &[], &discovered()).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.reason()), (text, "InvalidFilter"));
    }
}

#[test]
fn nulls_in_a_spec_are_ignored() {
    let read =
        filters(json!({"includedNamespaces": null, "orLabelSelectors": null, "labelSelector": null, "ttl": "1h"}));
    assert_eq!(read, Filters::default());
}

#[test]
fn literal_namespaces_can_be_listed_one_by_one() {
    assert_eq!(
        backup(json!({"includedNamespaces": ["b", "a"], "excludedNamespaces": ["c"]})).named_namespaces(),
        Some(vec!["b", "a"])
    );
    assert_eq!(backup(json!({"includedNamespaces": ["a", "b*"]})).named_namespaces(), None);
    assert_eq!(backup(json!({})).named_namespaces(), None);
}

#[test]
fn a_policy_adds_to_the_spec_and_the_spec_takes_precedence() {
    let policies = ResourcePolicies::parse(
        "version: v1\nincludeExcludePolicy:\n  includedClusterScopedResources: [storageclasses]\n  excludedNamespaceScopedResources: [secrets, pods]\n",
    )
    .unwrap();
    let select = |spec: Value| Selection::for_backup(&filters(spec), Some(&policies), &[], &discovered()).unwrap();
    let plain = select(json!({}));
    assert!(plain.resource(STORAGE_CLASSES, false).is_included());
    assert!(!plain.resource(CLUSTER_ROLES, false).is_included());
    assert!(!plain.resource("secrets", true).is_included());
    assert!(plain.resource("deployments.apps", true).is_included());
    let spec_wins =
        select(json!({"includedNamespaceScopedResources": ["pods"], "excludedClusterScopedResources": ["sc"]}));
    assert!(spec_wins.resource("pods", true).is_included());
    assert!(!spec_wins.resource("secrets", true).is_included());
    assert!(!spec_wins.resource(STORAGE_CLASSES, false).is_included());
}

#[test]
fn filter_policies_replace_the_selectors() {
    let policies = ResourcePolicies::parse(
        "version: v1
clusterScopedFilterPolicy:
  resourceFilters:
  - kinds: [clusterroles]
    names: [my-*]
    excludedNames: [my-old]
namespacedFilterPolicies:
- namespaces: [ns-*]
  resourceFilters:
  - kinds: [secret]
    names: [keep]
- namespaces: [ns-1]
  resourceFilters:
  - kinds: [pods]
    labelSelector:
      matchLabels: {app: web}
  - kinds: ['*']
    orLabelSelectors:
    - matchLabels: {a: x}
    - matchLabels: {b: y}
",
    )
    .unwrap();
    let spec = filters(json!({"labelSelector": {"matchLabels": {"global": "yes"}}}));
    let selection = Selection::for_backup(&spec, Some(&policies), &[], &discovered()).unwrap();
    let (web, x, global) = (json!({"app": "web"}), json!({"a": "x"}), json!({"global": "yes"}));
    for (group_resource, namespace, name, labels, expected) in [
        // A literal namespace takes precedence over a pattern in any order.
        ("pods", Some("ns-1"), "p", &web, FilterDecision::Include),
        ("pods", Some("ns-1"), "p", &x, FilterDecision::Exclude(ExclusionReason::Labels)),
        ("secrets", Some("ns-1"), "keep", &x, FilterDecision::Include),
        ("secrets", Some("ns-1"), "keep", &web, FilterDecision::Exclude(ExclusionReason::Labels)),
        ("secrets", Some("ns-2"), "keep", &web, FilterDecision::Include),
        ("secrets", Some("ns-2"), "drop", &web, FilterDecision::Exclude(ExclusionReason::FilterPolicy)),
        ("pods", Some("ns-2"), "p", &global, FilterDecision::Exclude(ExclusionReason::FilterPolicy)),
        ("pods", Some("other"), "p", &global, FilterDecision::Include),
        ("pods", Some("other"), "p", &web, FilterDecision::Exclude(ExclusionReason::Labels)),
        (CLUSTER_ROLES, None, "my-role", &web, FilterDecision::Include),
        (CLUSTER_ROLES, None, "my-old", &web, FilterDecision::Exclude(ExclusionReason::FilterPolicy)),
        (STORAGE_CLASSES, None, "fast", &web, FilterDecision::Exclude(ExclusionReason::Labels)),
    ] {
        let verdict = selection.item(&item(group_resource, namespace, name, labels));
        assert_eq!(verdict, expected, "{group_resource} {namespace:?} {name} {labels}");
    }
    // An additional item may be of a kind that is not listed, but its name must not be excluded.
    assert!(selection.additional(&item("pods", Some("ns-2"), "p", &web)).is_included());
    assert!(!selection.additional(&item("secrets", Some("ns-2"), "drop", &web)).is_included());
}
