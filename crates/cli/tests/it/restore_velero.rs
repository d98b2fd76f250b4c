//! Migration from Velero: Plimsoll restores a backup of a real Velero as Velero does.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::ListParams;
use plimsoll_testkit::peers::Velero;
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, phase};
use crate::planted::{counts, create, objects, read, restored_file};

const KINDS: [(&str, &str); 13] = [
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "ServiceAccount"),
    ("v1", "Service"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Pod"),
    ("v1", "LimitRange"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
];

/// An application that every built-in action has something to do with.
fn application(shop: &str, class: &str) -> Vec<Value> {
    let meta = |name: &str| json!({ "name": name, "namespace": shop });
    let template = |labels: Value| {
        json!({ "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "c", "image": "none" }] } })
    };
    let applied = json!({ "spec": { "ports": [{ "name": "chosen", "nodePort": 30777 }] } }).to_string();
    vec![
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("settings"), "data": { "k": "ä \"v\" </x>" }, "binaryData": { "b": "AAEC" } }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "final", "namespace": shop, "finalizers": ["test.plimsoll.dev/none"] } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": meta("password"), "stringData": { "p": "x" } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("robot"), "imagePullSecrets": [{ "name": "pull" }] }),
        json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": { "name": "own-token", "namespace": shop, "annotations": { "kubernetes.io/service-account.name": "robot" } } }),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": meta("plain"), "spec": { "selector": { "a": "b" }, "ports": [{ "port": 80 }] } }),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": meta("headless"), "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] } }),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "ports", "namespace": shop,
                "annotations": { "kubectl.kubernetes.io/last-applied-configuration": applied } },
            "spec": { "type": "NodePort", "ports": [{ "name": "chosen", "port": 80, "nodePort": 30777 }] } }),
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta("data"),
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": { "requests": { "storage": "1Mi" } } } }),
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": meta("pod"), "spec": { "nodeSelector": { "no": "node" }, "priorityClassName": class,
            "containers": [{ "name": "c", "image": "none" }], "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }] } }),
        json!({ "apiVersion": "v1", "kind": "LimitRange", "metadata": meta("limits"), "spec": { "limits": [{ "type": "PersistentVolumeClaim", "max": { "storage": "1Gi" } }] } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("web"), "spec": { "replicas": 0,
            "selector": { "matchLabels": { "app": "web" } }, "template": template(json!({ "app": "web" })) } }),
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta("db"), "spec": { "replicas": 0, "serviceName": "headless",
            "selector": { "matchLabels": { "app": "db" } }, "template": template(json!({ "app": "db" })) } }),
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": meta("waiting"), "spec": { "suspend": true, "template": {
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "none" }] } } } }),
        json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta("nightly"), "spec": { "schedule": "0 3 * * *", "suspend": true,
            "jobTemplate": { "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "none" }] } } } } } }),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta("reader"),
            "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }] }),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta("reader"),
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
            "subjects": [{ "kind": "ServiceAccount", "name": "robot", "namespace": shop }] }),
    ]
}

/// What is in a namespace, without what no two creations have in common: identity, times, addresses and ports that the
/// cluster chose, tokens it issued, the name of the restore.
async fn contents(bed: &Bed, namespace: &str) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for (api_version, kind) in KINDS {
        for found in objects(bed, api_version, kind, Some(namespace)).list(&ListParams::default()).await.unwrap() {
            let mut object = serde_json::to_value(&found).unwrap();
            object.as_object_mut().unwrap().remove("status");
            let metadata = object["metadata"].as_object_mut().unwrap();
            for unique in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
                metadata.remove(unique);
            }
            if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
                labels.retain(|key, _| !key.starts_with("velero.io/") && !key.contains("controller-uid"));
            }
            forget_chosen(kind, &mut object);
            all.insert(format!("{kind}/{}", found.name_any()), object);
        }
    }
    all
}

fn forget_chosen(kind: &str, object: &mut Value) {
    let unique = |object: &mut Value, pointer: &str, fields: &[&str]| {
        if let Some(map) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
            map.retain(|field, _| !fields.contains(&field.as_str()));
        }
    };
    match kind {
        "Service" if object["spec"]["clusterIP"] != "None" => unique(object, "/spec", &["clusterIP", "clusterIPs"]),
        "Job" => {
            unique(object, "/spec/selector/matchLabels", &["batch.kubernetes.io/controller-uid"]);
            unique(object, "/spec/template/metadata/labels", &["batch.kubernetes.io/controller-uid", "controller-uid"]);
        }
        "Secret" => {
            unique(object, "/data", &["token"]);
            unique(object, "/metadata/annotations", &["kubernetes.io/service-account.uid"]);
        }
        "Pod" => {
            let volumes = object.pointer_mut("/spec/volumes").and_then(Value::as_array_mut);
            let random = |name: &str| name.starts_with("kube-api-access-");
            volumes
                .into_iter()
                .flatten()
                .filter(|v| random(v["name"].as_str().unwrap()))
                .for_each(|v| v["name"] = json!("token"));
            let mounts = object.pointer_mut("/spec/containers/0/volumeMounts").and_then(Value::as_array_mut);
            mounts
                .into_iter()
                .flatten()
                .filter(|v| random(v["name"].as_str().unwrap()))
                .for_each(|v| v["name"] = json!("token"));
        }
        _ => {}
    }
}

/// Who owns fields, without when: managers other than those of a status.
async fn owners(bed: &Bed, namespace: &str) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    for (api_version, kind) in KINDS {
        for found in objects(bed, api_version, kind, Some(namespace)).list(&ListParams::default()).await.unwrap() {
            let entries =
                found.managed_fields().iter().filter(|entry| entry.subresource.as_deref().unwrap_or("").is_empty());
            let name = |entry: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| {
                format!("{} {}", entry.manager.clone().unwrap_or_default(), entry.operation.clone().unwrap_or_default())
            };
            let mut names: Vec<String> = entries.map(name).collect();
            names.sort();
            all.insert(format!("{kind}/{}", found.name_any()), names);
        }
    }
    all
}

/// Until a controller does it: the Backup that lies in the bucket, as an object.
async fn sync(home: &Home<'_>, name: &str) {
    let file = home.bucket.join(format!("backups/{name}/velero-backup.json"));
    let backup: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": { "name": name, "labels": backup["metadata"]["labels"], "annotations": backup["metadata"]["annotations"] },
        "spec": backup["spec"], "status": backup["status"] });
    match home.create(object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        created => drop(created.unwrap()),
    }
}

async fn release_and_delete(bed: &Bed, name: &str, namespace: &str) {
    let release = kube::api::Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let maps = objects(bed, "v1", "ConfigMap", Some(namespace));
    let _ = maps.patch("final", &kube::api::PatchParams::default(), &release).await;
    bed.delete_namespace(name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plimsoll_restores_a_velero_backup_as_velero_does() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    require!(Velero::preflight());
    require!(cache::program("versitygw"));
    let bed = Bed::real(cluster).await;
    let (_store, home, velero) = bed.home_beside_velero(cluster).await;
    let (shop, class) = (bed.application("shop", 0).await, bed.ns("class"));
    create(&bed, &json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": class }, "value": 7 })).await;
    for object in application(&shop, &class) {
        create(&bed, &object).await;
    }
    eventually("the token is issued", async || {
        read(&bed, "v1", "Secret", Some(&shop), "own-token")
            .await
            .is_some_and(|secret| secret["data"]["token"].is_string())
    })
    .await;
    velero.cli(["backup", "create", "theirs", "--include-namespaces", &shop, "--wait"]).unwrap();

    release_and_delete(&bed, "shop", &shop).await;
    velero.cli(["restore", "create", "theirs", "--from-backup", "theirs", "--wait"]).unwrap();
    let described = velero.cli(["restore", "describe", "theirs"]).unwrap();
    let phase_line = described.lines().find(|line| line.starts_with("Phase:")).unwrap_or_default();
    assert!(phase_line.contains("Completed"), "{described}");
    let (theirs, their_owners) = (contents(&bed, &shop).await, owners(&bed, &shop).await);

    release_and_delete(&bed, "shop", &shop).await;
    let _server = home.server();
    sync(&home, "theirs").await;
    home.restore("ours", json!({ "backupName": "theirs" })).await;
    let restore = home.ended("Restore", "ours").await;
    let results = restored_file(&home, "ours", "results.gz");
    assert_eq!(
        (phase(&restore), &restore["status"]["errors"]),
        ("Completed", &json!(0)),
        "{restore:#}
{results:#}"
    );
    assert_eq!(counts(&restore)[3], 0, "{restore:#}");
    let (ours, our_owners) = (contents(&bed, &shop).await, owners(&bed, &shop).await);

    for (name, their) in &theirs {
        assert_eq!(ours.get(name), Some(their), "{name} differs");
    }
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    // What the cluster made by itself in the new namespace belongs to its controllers in both cases, at their own pace.
    let made_here = ["ConfigMap/kube-root-ca.crt", "ServiceAccount/default", "Secret/own-token"];
    for (name, their) in their_owners.iter().filter(|(name, _)| !made_here.contains(&name.as_str())) {
        assert_eq!(our_owners.get(name), Some(their), "owners of {name}");
    }
    release_and_delete(&bed, "shop", &shop).await;
    let classes = objects(&bed, "scheduling.k8s.io/v1", "PriorityClass", None);
    let _ = classes.delete(&class, &kube::api::DeleteParams::default()).await;
    bed.clear().await;
}
