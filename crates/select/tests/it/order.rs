use std::collections::BTreeMap;

use plimsoll_select::order::{OrderedResources, Priorities, RestoreOrder, backup_rank};
use plimsoll_select::resources::{Catalog, Known, Lookup, Resolved};

pub(crate) fn catalog() -> Catalog {
    let known = |group: &str, plural: &str, singular: &str, kind: &str, short: &[&str], namespaced| Known {
        group: group.into(),
        plural: plural.into(),
        singular: singular.into(),
        kind: kind.into(),
        short: short.iter().map(|s| (*s).to_owned()).collect(),
        namespaced,
    };
    Catalog::new(vec![
        known("", "pods", "pod", "Pod", &["po"], true),
        known("", "persistentvolumes", "persistentvolume", "PersistentVolume", &["pv"], false),
        known("", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", &["pvc"], true),
        known("", "namespaces", "namespace", "Namespace", &["ns"], false),
        known("", "secrets", "secret", "Secret", &[], true),
        known("", "events", "event", "Event", &["ev"], true),
        known("apps", "deployments", "deployment", "Deployment", &["deploy"], true),
        known("extensions", "deployments", "deployment", "Deployment", &["deploy"], true),
        known("events.k8s.io", "events", "event", "Event", &["ev"], true),
        known("rbac.authorization.k8s.io", "clusterroles", "clusterrole", "ClusterRole", &[], false),
        known("rbac.authorization.k8s.io", "roles", "role", "Role", &[], true),
        known("storage.k8s.io", "storageclasses", "storageclass", "StorageClass", &["sc"], false),
        known(
            "snapshot.storage.k8s.io",
            "volumesnapshotclasses",
            "volumesnapshotclass",
            "VolumeSnapshotClass",
            &[],
            false,
        ),
        known(
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
        assert_eq!(catalog().resolve(name).map(|found| found.group_resource).as_deref(), expected, "{name}");
    }
}

#[test]
fn a_restore_goes_high_then_alphabetical_then_low() {
    let order = RestoreOrder::new(&Priorities::default(), &catalog());
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
fn without_discovery_the_defaults_still_find_their_groups() {
    let nothing = |_: &str| -> Option<Resolved> { None };
    let order = RestoreOrder::new(&Priorities::default(), &nothing);
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
        let parsed: Priorities = text.parse().unwrap();
        assert_eq!(
            (parsed.high, parsed.low),
            (high.iter().map(ToString::to_string).collect(), low.iter().map(ToString::to_string).collect()),
            "{text}"
        );
    }
    assert_eq!("".parse::<Priorities>().unwrap(), Priorities::default());
    assert!("a,-,b,-,c".parse::<Priorities>().is_err());
    assert!("a,,b".parse::<Priorities>().is_err());
}

#[test]
fn a_backup_takes_pods_then_claims_then_volumes_then_the_rest() {
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
fn ordered_resources_come_in_the_order_of_the_spec() {
    let field = BTreeMap::from([
        ("pods".to_owned(), "ns2/b, ns1/a".to_owned()),
        ("persistentvolumes".to_owned(), "pv2,pv1".to_owned()),
    ]);
    let ordered = OrderedResources::new(&field);
    assert_eq!(ordered.place("pods", Some("ns2"), "b"), Some(0));
    assert_eq!(ordered.place("pods", Some("ns1"), "a"), Some(1));
    assert_eq!(ordered.place("pods", Some("ns1"), "b"), None);
    assert_eq!(ordered.place("persistentvolumes", None, "pv1"), Some(1));
    assert_eq!(ordered.place("secrets", Some("ns1"), "a"), None);
}
