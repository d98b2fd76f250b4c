//! Which item actions apply to an item, and in which order.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_engine::registry::{AppliesTo, Registry, Source};
use plimsoll_select::resources::{DiscoveredResource, DiscoveredResources};

fn catalog() -> DiscoveredResources {
    DiscoveredResources::new(vec![DiscoveredResource {
        plural: "pods".into(),
        short_names: vec!["po".into()],
        namespaced: true,
        ..DiscoveredResource::default()
    }])
}

fn registry(entries: &[(Source, &str, AppliesTo)]) -> Registry<str> {
    let mut registry = Registry::default();
    for (source, name, applies) in entries {
        registry.register(source.clone(), name, applies, &catalog(), Arc::from("")).unwrap();
    }
    registry
}

#[test]
fn built_ins_are_ordered_before_plugins() {
    let any = AppliesTo::default;
    let registry = registry(&[
        (Source::Plugin("/plugins/b".into()), "a.io/z", any()),
        (Source::Plugin("/plugins/a".into()), "z.io/y", any()),
        (Source::BuiltIn(2), "velero.io/csi", any()),
        (Source::BuiltIn(1), "velero.io/pv", any()),
        (Source::BuiltIn(1), "velero.io/pod", any()),
    ]);
    let names: Vec<_> = registry.names().collect();
    assert_eq!(names, ["velero.io/pod", "velero.io/pv", "velero.io/csi", "z.io/y", "a.io/z"]);
}

#[test]
fn actions_are_matched_by_resource_and_labels() {
    let registry = registry(&[(Source::BuiltIn(1), "x", AppliesTo::resources(["po"]).with_labels("app=shop"))]);
    let shop = BTreeMap::from([("app".to_owned(), "shop".to_owned())]);
    let none = BTreeMap::new();
    assert!(registry.applies_to_resource("pods") && !registry.applies_to_resource("secrets"));
    assert_eq!(registry.for_item("pods", Some("ns"), &shop).count(), 1);
    assert_eq!(registry.for_item("pods", Some("ns"), &none).count(), 0);
}

#[test]
fn an_action_with_namespaces_does_not_match_cluster_scoped_items() {
    let applies = AppliesTo { included_namespaces: vec!["shop-*".into()], ..AppliesTo::default() };
    let registry = registry(&[(Source::BuiltIn(1), "x", applies)]);
    let none = BTreeMap::new();
    assert_eq!(registry.for_item("pods", Some("shop-a"), &none).count(), 1);
    assert_eq!(registry.for_item("pods", Some("other"), &none).count(), 0);
    assert_eq!(registry.for_item("nodes", None, &none).count(), 0);
}

#[test]
fn duplicate_names_are_errors() {
    let mut registry = registry(&[(Source::BuiltIn(1), "x", AppliesTo::default())]);
    let duplicate = registry.register(Source::BuiltIn(2), "x", &AppliesTo::default(), &catalog(), Arc::from(""));
    assert_eq!(duplicate.unwrap_err().to_string(), "duplicate item action x");
}
