//! The dry run reports what a restore would do, and changes nothing.

use std::collections::BTreeMap;
use std::io::Cursor;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use plimsoll_engine::cluster::Cluster;
use plimsoll_engine::restore::BackupVolumes;
use plimsoll_engine::restore::preview::{Preview, PreviewItem, PreviewRequest, PreviewVerdict, preview};
use plimsoll_progress::{Clock, Operation};
use serde_json::{Value, json};

use crate::bed::{Bed, on_both_clusters};
use crate::planted::{Planted, config_map, create, read};

on_both_clusters! {
    a_preview_lists_created_equal_different_and_missing_items,
}

async fn look(client: Client, home: &str, planted: &Planted, spec: Value) -> (Preview, BTreeMap<String, PreviewItem>) {
    let restore = json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": { "name": "dry", "namespace": home }, "spec": spec });
    let request = PreviewRequest {
        cluster: Cluster::new(client),
        restore: serde_json::from_value(restore).unwrap(),
        policies: None,
        modifiers: None,
        volumes: BackupVolumes::default(),
    };
    let scratch = tempfile::tempdir().unwrap();
    let operation = Operation::new("preview", Clock::system());
    let mut items = BTreeMap::new();
    let archive = Cursor::new(planted.packed());
    let task = operation.root();
    let found = preview(request, archive, scratch.path(), &task, |item| {
        items.insert(format!("{}/{}", item.kind, item.name), item);
    });
    (found.await.unwrap(), items)
}

async fn a_preview_lists_created_equal_different_and_missing_items(bed: &Bed) {
    let home = bed.home("home").await;
    let (shop, fresh) = (bed.application("shop", 0).await, bed.ns("fresh"));
    create(bed, &config_map(&shop, "same", "1")).await;
    create(bed, &config_map(&shop, "other", "here")).await;
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data", "namespace": fresh },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": bed.ns("absent-class"), "resources": { "requests": { "storage": "1Mi" } } } });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "done", "namespace": fresh }, "spec": {}, "status": { "phase": "Succeeded" } });
    let strange = json!({ "apiVersion": "strange.example.com/v1", "kind": "Strange", "metadata": { "name": "x", "namespace": fresh } });
    let planted = Planted::new()
        .object("configmaps", &config_map(&shop, "same", "1"))
        .object("configmaps", &config_map(&shop, "other", "backed up"))
        .object("configmaps", &config_map(&fresh, "new", "1"))
        .object("persistentvolumeclaims", &claim)
        .object("pods", &pod)
        .object("stranges.strange.example.com", &strange)
        .file("resources/configmaps/namespaces/x/bad.json", b"{");
    let (found, items) = look(bed.client.clone(), &home.namespace, &planted, json!({ "backupName": "b" })).await;
    assert_eq!(found.total, 7);
    assert_eq!(found.counts, BTreeMap::from([("create", 3), ("differ", 1), ("equal", 1), ("skip", 1)]), "{items:#?}");
    assert_eq!(items["v1/ConfigMap/new"].verdict, PreviewVerdict::Create);
    assert_eq!(items["v1/ConfigMap/same"].verdict, PreviewVerdict::Equal);
    let differ = PreviewVerdict::Differ { difference: json!({ "data": { "k": "backed up" } }), updated: false };
    assert_eq!(items["v1/ConfigMap/other"].verdict, differ);
    assert_eq!(items["v1/Pod/done"].verdict, PreviewVerdict::Skip { reason: "FinishedPod".into() });
    assert_eq!(found.missing_namespaces.iter().collect::<Vec<_>>(), [&fresh]);
    assert_eq!(found.missing_kinds.iter().collect::<Vec<_>>(), ["stranges.strange.example.com"]);
    assert_eq!(found.missing_storage_classes.iter().collect::<Vec<_>>(), [&bed.ns("absent-class")]);
    assert!(found.damaged.len() == 1 && found.not_allowed.is_empty(), "{found:#?}");
    assert!(read(bed, "v1", "Namespace", None, &fresh).await.is_none(), "nothing was done");

    let filtered = json!({ "backupName": "b", "includedNamespaces": [shop], "existingResourcePolicy": "update" });
    let (found, items) = look(bed.client.clone(), &home.namespace, &planted, filtered).await;
    assert_eq!((found.total, found.excluded), (3, 4));
    assert!(matches!(items["v1/ConfigMap/other"].verdict, PreviewVerdict::Differ { updated: true, .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_the_caller_may_not_create_are_named() {
    let cluster = plimsoll_testkit::require!(plimsoll_testkit::cluster().await);
    let bed = Bed::real(cluster).await;
    let (home, shop) = (bed.home("home").await, bed.application("shop", 0).await);
    let user = bed.ns("user");
    let grant = |namespace: &str, verbs: &[&str]| {
        let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "some", "namespace": namespace },
            "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": verbs }] });
        let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "some", "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "some" },
            "subjects": [{ "kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io" }] });
        [role, binding]
    };
    for object in grant(&home.namespace, &["list"]).iter().chain(&grant(&shop, &["get", "create"])) {
        create(&bed, object).await;
    }
    let mut file = Kubeconfig::read_from(&bed.kubeconfig).unwrap();
    file.auth_infos[0].auth_info.as_mut().unwrap().impersonate = Some(user);
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": shop } });
    let planted = Planted::new().object("configmaps", &config_map(&shop, "new", "1")).object("secrets", &secret);
    let client = Client::try_from(config).unwrap();
    let (found, _) = look(client, &home.namespace, &planted, json!({ "backupName": "b" })).await;
    assert_eq!(found.not_allowed.iter().collect::<Vec<_>>(), [&format!("create secrets in namespace {shop}")]);
    bed.clear().await;
}
