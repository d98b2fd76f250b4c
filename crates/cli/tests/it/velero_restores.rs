//! There is a way back: a real Velero restores what we have backed up, as it restores its own.

use std::collections::BTreeMap;

use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use plimsoll_testkit::peers::Velero;
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};

use crate::bed::{Bed, eventually, phase};

const KINDS: [(&str, &str, &str); 9] = [
    ("", "v1", "ConfigMap"),
    ("", "v1", "Secret"),
    ("", "v1", "ServiceAccount"),
    ("", "v1", "Service"),
    ("", "v1", "PersistentVolumeClaim"),
    ("apps", "v1", "Deployment"),
    ("rbac.authorization.k8s.io", "v1", "Role"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    ("batch", "v1", "CronJob"),
];

fn objects() -> Vec<Value> {
    let template = json!({ "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "web", "image": "none", "env": [{ "name": "A", "value": "b" }] }] } });
    let job = json!({ "spec": { "template": { "spec": {
        "restartPolicy": "Never", "containers": [{ "name": "tidy", "image": "none" }] } } } });
    vec![
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "finalizers": ["test.plimsoll.dev/none"] },
            "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": "http" }] } }),
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": { "requests": { "storage": "1Mi" } } } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "annotations": { "note": "ä \"quoted\" </tag>" } },
            "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "web" } }, "template": template } }),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "reader" },
            "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }] }),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "reader" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
            "subjects": [{ "kind": "ServiceAccount", "name": "account-2" }] }),
        json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "tidy" },
            "spec": { "schedule": "0 3 * * *", "suspend": true, "jobTemplate": job } }),
    ]
}

fn api(bed: &Bed, namespace: &str, (group, version, kind): (&str, &str, &str)) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(bed.client.clone(), namespace, &resource)
}

async fn fill(bed: &Bed, namespace: &str) {
    for object in objects() {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let known = *KINDS.iter().find(|(_, _, known)| *known == kind).unwrap();
        let object = serde_json::from_value(object).unwrap();
        api(bed, namespace, known).create(&PostParams::default(), &object).await.unwrap();
    }
}

/// What is in a namespace, without what no two creations have in common.
async fn contents(bed: &Bed, namespace: &str) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for kind in KINDS {
        for found in api(bed, namespace, kind).list(&ListParams::default()).await.unwrap() {
            let mut object = serde_json::to_value(&found).unwrap();
            let metadata = object["metadata"].as_object_mut().unwrap();
            for unique in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
                metadata.remove(unique);
            }
            if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
                for entry in entries.iter_mut() {
                    entry.as_object_mut().unwrap().remove("time");
                }
                // The API server sorts them by time.
                entries.sort_by_key(Value::to_string);
            }
            for label in ["velero.io/backup-name", "velero.io/restore-name"] {
                metadata.get_mut("labels").and_then(Value::as_object_mut).map(|labels| labels.remove(label));
            }
            if kind.2 == "Service" {
                let spec = object["spec"].as_object_mut().unwrap();
                spec.remove("clusterIP");
                spec.remove("clusterIPs");
            }
            object.as_object_mut().unwrap().remove("status");
            all.insert(format!("{}/{}", kind.2, found.name_any()), object);
        }
    }
    all
}

/// No controller handles the finalizer: it is only backed up and restored.
async fn release_and_delete(bed: &Bed, name: &str, namespace: &str) {
    let release = kube::api::Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let _ = api(bed, namespace, KINDS[3]).patch("web", &kube::api::PatchParams::default(), &release).await;
    bed.delete_namespace(name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn velero_restores_a_plimsoll_backup_as_its_own() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    require!(Velero::preflight());
    require!(cache::program("versitygw"));
    let bed = Bed::real(cluster).await;
    let (_store, home, velero) = bed.home_beside_velero(cluster).await;
    let _server = home.server();
    let velero_api = api(&bed, velero.namespace(), ("velero.io", "v1", "BackupStorageLocation"));
    let hurry = kube::api::Patch::Merge(json!({ "spec": { "backupSyncPeriod": "1s" } }));
    velero_api.patch("default", &kube::api::PatchParams::default(), &hurry).await.unwrap();
    let shop = bed.application("shop", 6).await;
    fill(&bed, &shop).await;

    home.backup("ours", json!({ "includedNamespaces": [shop] })).await;
    let backup = home.ended("Backup", "ours").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}");
    velero.cli(["backup", "create", "theirs", "--include-namespaces", &shop, "--wait"]).unwrap();
    let backups = api(&bed, velero.namespace(), ("velero.io", "v1", "Backup"));
    eventually("Velero finds our backup in the bucket", async || backups.get_opt("ours").await.unwrap().is_some())
        .await;
    let described = velero.cli(["backup", "describe", "ours", "--details", "--colorized=false"]).unwrap();
    assert!(described.contains("Phase:  Completed") && described.contains("apps/v1/Deployment"), "{described}");

    let mut restored = Vec::new();
    for name in ["ours", "theirs"] {
        release_and_delete(&bed, "shop", &shop).await;
        velero.cli(["restore", "create", name, "--from-backup", name, "--wait"]).unwrap();
        let restore = velero.cli(["restore", "describe", name]).unwrap();
        assert!(
            restore.contains("Completed"),
            "{restore}\n{}",
            velero.cli(["restore", "logs", name]).unwrap_or_default()
        );
        restored.push(contents(&bed, &shop).await);
    }
    for (name, theirs) in &restored[1] {
        assert_eq!(restored[0].get(name), Some(theirs), "{name} differs");
    }
    assert_eq!(restored[0].len(), restored[1].len());
    release_and_delete(&bed, "shop", &shop).await;
    bed.clear().await;
}
