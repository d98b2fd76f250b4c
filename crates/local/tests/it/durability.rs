//! Acknowledged writes survive `kill -9`.

use crate::conformance::config_map;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api as Kube, ResourceExt,
    api::{ListParams, PostParams},
};
use plimsoll_local::Api;
use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

const DIRECTORY: &str = "PLIMSOLL_DURABILITY_DIRECTORY";
const MIN_WRITES: usize = 300;

/// Not a test by itself: the process that is killed. It prints every name the API has acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let api = Api::open(directory.as_ref()).await.unwrap();
    let start = std::process::id();
    let writers = (0..8).map(|writer| {
        let maps: Kube<ConfigMap> = Kube::namespaced(api.client("default"), "default");
        tokio::spawn(async move {
            for number in 0.. {
                let name = format!("object-{start}-{writer}-{number}");
                maps.create(&PostParams::default(), &config_map(&name, "x")).await.unwrap();
                // One write for each line: a line that is cut off was not acknowledged.
                std::io::stdout().write_all(format!("acknowledged {name}\n").as_bytes()).unwrap();
            }
        })
    });
    futures::future::join_all(writers).await;
}

fn acknowledged_until_killed(directory: &std::path::Path) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["durability::writes_until_it_is_killed", "--exact", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut names = Vec::new();
    for line in lines.map_while(Result::ok) {
        names.extend(line.split("acknowledged ").nth(1).map(str::to_owned));
        if names.len() == MIN_WRITES {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    names
}

#[tokio::test]
async fn every_acknowledged_write_survives_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeSet::new();
    for _ in 0..3 {
        let names = acknowledged_until_killed(directory.path());
        assert!(names.len() >= MIN_WRITES, "the writer ended early, after {}", names.len());
        acknowledged.extend(names);
        let api = Api::open(directory.path()).await.unwrap();
        let maps: Kube<ConfigMap> = Kube::namespaced(api.client("default"), "default");
        let list = maps.list(&ListParams::default()).await.unwrap();
        let present: BTreeSet<String> = list.items.iter().map(ResourceExt::name_any).collect();
        let lost: Vec<_> = acknowledged.difference(&present).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        let newest =
            list.items.iter().filter_map(ResourceExt::resource_version).map(|v| v.parse::<u64>().unwrap()).max();
        let counter = list.metadata.resource_version.unwrap().parse::<u64>().unwrap();
        assert!(newest.unwrap() <= counter, "the counter never falls behind the objects");
        api.close().await;
    }
}

#[tokio::test]
async fn a_deletion_that_was_interrupted_is_finished_after_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let api = Api::open(directory.path()).await.unwrap();
    let scope = crate::conformance::Scope::new(api.client("default"), "interrupted").await;
    let maps = scope.config_maps();
    for number in 0..50 {
        crate::conformance::create(&maps, &config_map(&format!("content-{number}"), "x")).await;
    }
    let namespaces: Kube<k8s_openapi::api::core::v1::Namespace> = Kube::all(scope.client.clone());
    namespaces.delete(&scope.namespace, &kube::api::DeleteParams::default()).await.unwrap();
    // Closed immediately: most of the content still exists.
    api.close().await;
    drop((api, maps, namespaces));
    let name = scope.namespace.clone();
    drop(scope);
    let reopened =
        crate::conformance::eventually("the data can be opened", || async { Api::open(directory.path()).await.ok() })
            .await;
    let namespaces: Kube<k8s_openapi::api::core::v1::Namespace> = Kube::all(reopened.client("default"));
    crate::conformance::eventually("the namespace is deleted", || async {
        namespaces.get_opt(&name).await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn only_its_owner_can_read_the_database() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("objects.redb"), "").unwrap();
    let _api = Api::open(directory.path()).await.unwrap();
    let mode = std::fs::metadata(directory.path().join("objects.redb")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "also one that an earlier version created");
}
