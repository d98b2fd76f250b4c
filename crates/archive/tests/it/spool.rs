use plimsoll_archive::spool::Spool;
use proptest::prelude::*;

fn rank(group_resource: &str) -> u32 {
    match group_resource {
        "namespaces" => 0,
        "clusters.cluster.x-k8s.io" => 2,
        _ => 1,
    }
}

fn spool() -> Spool {
    Spool::create(&std::env::temp_dir(), 1 << 30).unwrap()
}

#[test]
fn rows_are_in_restore_order_with_the_appended_objects() {
    let mut spool = spool();
    for (resource, namespace, name) in [
        ("clusters.cluster.x-k8s.io", Some("a"), "c"),
        ("pods", Some("b"), "z"),
        ("pods", Some("a"), "z"),
        ("namespaces", None, "b"),
        ("deployments.apps", Some("b"), "d"),
        ("pods", Some("a"), "m"),
        ("namespaces", None, "a"),
    ] {
        spool.append(resource, namespace, name, format!("{resource}/{name}").as_bytes()).unwrap();
    }
    let sealed = spool.seal(rank).unwrap();
    let order: Vec<_> = sealed.rows().map(|row| (row.group_resource, row.namespace, row.name)).collect();
    assert_eq!(
        order,
        [
            ("namespaces", None, "a"),
            ("namespaces", None, "b"),
            ("deployments.apps", Some("b"), "d"),
            ("pods", Some("a"), "m"),
            ("pods", Some("a"), "z"),
            ("pods", Some("b"), "z"),
            ("clusters.cluster.x-k8s.io", Some("a"), "c"),
        ]
    );
    let resources: Vec<_> = sealed.resources().collect();
    assert_eq!(
        resources,
        [("namespaces", 0..2), ("deployments.apps", 2..3), ("pods", 3..6), ("clusters.cluster.x-k8s.io", 6..7)]
    );
    assert_eq!(sealed.read(4).unwrap().json, b"pods/z");
    assert_eq!(sealed.read(7).unwrap_err().reason(), "SpoolCorrupted");
}

#[test]
fn the_limit_is_checked_before_anything_is_written() {
    let mut spool = Spool::create(&std::env::temp_dir(), 2000).unwrap();
    // Incompressible.
    let noise = |seed: u64| -> Vec<u8> {
        let mut state = seed | 1;
        (0..300_000u32)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect()
    };
    spool.append("pods", None, "a", &noise(1)).unwrap();
    let error = spool.append("pods", None, "b", &noise(2)).unwrap_err();
    assert_eq!((error.reason(), spool.bytes_written()), ("SpoolFull", 0));
}

#[test]
fn the_scratch_file_is_unlinked() {
    let directory = tempfile::tempdir().unwrap();
    let mut spool = Spool::create(directory.path(), 1 << 20).unwrap();
    spool.append("secrets", Some("a"), "s", b"secret").unwrap();
    let sealed = spool.seal(rank).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    assert_eq!(sealed.read(0).unwrap().json, b"secret");
}

#[test]
fn long_names_with_the_same_prefix_are_distinguished() {
    let mut spool = spool();
    let name = |i: usize| format!("{}{i}", "n".repeat(100));
    for i in 0..20 {
        spool.append("pods", Some("a"), &name(i), &[u8::try_from(i).unwrap()]).unwrap();
    }
    let sealed = spool.seal(rank).unwrap();
    for i in 0..20 {
        let found = sealed.find("pods", Some("a"), &name(i)).unwrap().unwrap();
        assert_eq!(sealed.read(found).unwrap().name, name(i));
    }
    assert_eq!(sealed.find("pods", Some("a"), &name(20)).unwrap(), None);
    assert_eq!(sealed.find("pods", None, &name(1)).unwrap(), None);
    assert_eq!(sealed.find("secrets", Some("a"), &name(1)).unwrap(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_object_is_found_with_its_bytes(
        objects in prop::collection::btree_map(("[abc]", prop::option::of("[a-z]{1,3}"), "[a-zé]{1,70}"), 0usize..200_000, 0..40)
    ) {
        let mut spool = spool();
        for ((resource, namespace, name), size) in &objects {
            let json = vec![u8::try_from(size % 251).unwrap(); *size];
            spool.append(resource, namespace.as_deref(), name, &json).unwrap();
        }
        prop_assert_eq!(spool.len(), objects.len());
        let sealed = spool.seal(rank).unwrap();
        prop_assert_eq!(sealed.rows().count(), objects.len());
        for ((resource, namespace, name), size) in &objects {
            let index = sealed.find(resource, namespace.as_deref(), name).unwrap().expect("it was appended");
            let found = sealed.read(index).unwrap();
            prop_assert_eq!((&found.group_resource, &found.namespace, &found.name), (resource, namespace, name));
            prop_assert_eq!(found.json.len(), *size);
            prop_assert!(found.json.iter().all(|byte| usize::from(*byte) == size % 251));
        }
    }
}
