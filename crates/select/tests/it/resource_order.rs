use std::collections::BTreeMap;

use plimsoll_select::resource_order::{OrderedResources, RestoreOrder, RestorePriorities, backup_rank};
use plimsoll_select::resources::{DiscoveredResource, DiscoveredResources, ResolvedResource, ResourceMapper};

pub(crate) fn discovered() -> DiscoveredResources {
    let resource =
        |group: &str, plural: &str, singular: &str, kind: &str, short_names: &[&str], namespaced| DiscoveredResource {
            group: group.into(),
            plural: plural.into(),
            singular: singular.into(),
            kind: kind.into(),
            short_names: short_names.iter().map(|s| (*s).to_owned()).collect(),
            namespaced,
        };
    DiscoveredResources::new(vec![
        resource("", "pods", "pod", "Pod", &["po"], true),
        resource("", "persistentvolumes", "persistentvolume", "PersistentVolume", &["pv"], false),
        resource("", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", &["pvc"], true),
        resource("", "namespaces", "namespace", "Namespace", &["ns"], false),
        resource("", "secrets", "secret", "Secret", &[], true),
        resource("", "events", "event", "Event", &["ev"], true),
        resource("apps", "deployments", "deployment", "Deployment", &["deploy"], true),
        resource("extensions", "deployments", "deployment", "Deployment", &["deploy"], true),
        resource("events.k8s.io", "events", "event", "Event", &["ev"], true),
        resource("rbac.authorization.k8s.io", "clusterroles", "clusterrole", "ClusterRole", &[], false),
        resource("rbac.authorization.k8s.io", "roles", "role", "Role", &[], true),
        resource("storage.k8s.io", "storageclasses", "storageclass", "StorageClass", &["sc"], false),
        resource(
            "snapshot.storage.k8s.io",
            "volumesnapshotclasses",
            "volumesnapshotclass",
            "VolumeSnapshotClass",
            &[],
            false,
        ),
        resource(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "customresourcedefinition",
            "CustomResourceDefinition",
            &["crd"],
            false,
        ),
    ])
}

#[test]
fn names_resolve_by_plural_singular_kind_and_short_name() {
    for (name, expected) in [
        ("pods", Some("pods")),
        ("po", Some("pods")),
        ("Pod", Some("pods")),
        ("deploy", Some("deployments.apps")),
        ("deployments", Some("deployments.apps")),
        ("deployment.apps", Some("deployments.apps")),
        ("deployments.extensions", Some("deployments.extensions")),
        ("roles.rbac", Some("roles.rbac.authorization.k8s.io")),
        ("events.events.k8s.io", Some("events.events.k8s.io")),
        ("events", Some("events")),
        ("widgets", None),
        ("pods.apps", None),
    ] {
        assert_eq!(discovered().resolve(name).map(|found| found.group_resource).as_deref(), expected, "{name}");
    }
}

#[test]
fn restore_order_is_high_then_alphabetical_then_low() {
    let order = RestoreOrder::new(&RestorePriorities::default(), &discovered());
    let mut resources = vec![
        "clusters.cluster.x-k8s.io",
        "widgets.example.com",
        "services",
        "deployments.apps",
        "pods",
        "apps.kappctrl.k14s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "storageclasses.storage.k8s.io",
        "volumesnapshotclasses.snapshot.storage.k8s.io",
        "namespaces",
        "customresourcedefinitions.apiextensions.k8s.io",
        "secrets",
        "cronjobs.batch",
    ];
    order.sort(&mut resources);
    assert_eq!(
        resources,
        [
            "customresourcedefinitions.apiextensions.k8s.io",
            "namespaces",
            "storageclasses.storage.k8s.io",
            "volumesnapshotclasses.snapshot.storage.k8s.io",
            "clusterroles.rbac.authorization.k8s.io",
            "secrets",
            "pods",
            "services",
            "cronjobs.batch",
            "deployments.apps",
            "widgets.example.com",
            "clusters.cluster.x-k8s.io",
            "apps.kappctrl.k14s.io",
        ]
    );
}

#[test]
fn without_discovery_the_defaults_have_their_groups() {
    let nothing = |_: &str| -> Option<ResolvedResource> { None };
    let order = RestoreOrder::new(&RestorePriorities::default(), &nothing);
    assert_eq!(order.rank("customresourcedefinitions.apiextensions.k8s.io"), 0);
    assert!(order.rank("roles.rbac.authorization.k8s.io") < order.rank("pods"));
}

#[test]
fn the_flag_separates_high_from_low_by_a_dash() {
    for (text, high, low) in [
        ("a,b,-,y,z", vec!["a", "b"], vec!["y", "z"]),
        ("a,b", vec!["a", "b"], vec![]),
        ("-,y", vec![], vec!["y"]),
        ("a,-", vec!["a"], vec![]),
        ("-", vec![], vec![]),
    ] {
        let parsed: RestorePriorities = text.parse().unwrap();
        assert_eq!(
            (parsed.high, parsed.low),
            (high.iter().map(ToString::to_string).collect(), low.iter().map(ToString::to_string).collect()),
            "{text}"
        );
    }
    assert_eq!("".parse::<RestorePriorities>().unwrap(), RestorePriorities::default());
    assert!("a,-,b,-,c".parse::<RestorePriorities>().is_err());
    assert!("a,,b".parse::<RestorePriorities>().is_err());
}

#[test]
fn backup_order_is_pods_claims_volumes_then_the_others() {
    let mut resources = [
        ("extensions", "deployments"),
        ("apps", "deployments"),
        ("", "secrets"),
        ("", "persistentvolumes"),
        ("", "persistentvolumeclaims"),
        ("", "pods"),
    ];
    resources.sort_by_key(|(group, resource)| backup_rank(group, resource));
    assert_eq!(
        resources,
        [
            ("", "pods"),
            ("", "persistentvolumeclaims"),
            ("", "persistentvolumes"),
            ("", "secrets"),
            ("apps", "deployments"),
            ("extensions", "deployments")
        ]
    );
}

#[test]
fn ordered_resources_have_the_order_of_the_spec() {
    let field = BTreeMap::from([
        ("pods".to_owned(), "ns2/b, ns1/a".to_owned()),
        ("persistentvolumes".to_owned(), "pv2,pv1".to_owned()),
    ]);
    let ordered = OrderedResources::new(&field);
    assert_eq!(ordered.position("pods", Some("ns2"), "b"), Some(0));
    assert_eq!(ordered.position("pods", Some("ns1"), "a"), Some(1));
    assert_eq!(ordered.position("pods", Some("ns1"), "b"), None);
    assert_eq!(ordered.position("persistentvolumes", None, "pv1"), Some(1));
    assert_eq!(ordered.position("secrets", Some("ns1"), "a"), None);
}
