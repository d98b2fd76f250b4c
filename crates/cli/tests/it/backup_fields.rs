//! Every field of a Backup does what its users know it to do.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, on_both_clusters, phase};

on_both_clusters! {
    dependencies_of_a_selected_object_are_backed_up,
    ordered_objects_come_first_and_an_unknown_one_is_named,
    filter_policies_replace_the_selector,
    a_backup_of_a_missing_namespace_is_an_error,
    the_backup_reports_the_defaults_that_the_server_chose,
    an_object_of_the_maximum_size_is_restored_with_its_crd,
}

async fn create(bed: &Bed, namespace: Option<&str>, object: Value) {
    let group_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = group_version.rsplit_once('/').unwrap_or(("", group_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap()));
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(bed.client.clone(), namespace, &resource),
        None => Api::all_with(bed.client.clone(), &resource),
    };
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

async fn delete_cluster_wide(bed: &Bed, group: &str, kind: &str, name: &str) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    let api: Api<DynamicObject> = Api::all_with(bed.client.clone(), &resource);
    let _ = api.delete(name, &DeleteParams::default()).await;
}

/// A claim that is bound to its volume: by the cluster where it has a controller for that, else by hand.
async fn bind(bed: &Bed, namespace: &str, claim: &str, volume: &str) {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(bed.client.clone(), namespace);
    let bound = json!({ "status": { "phase": "Bound" } });
    eventually("the claim is bound", async || {
        let found = claims.get(claim).await.unwrap();
        let is_bound = found.status.and_then(|status| status.phase).as_deref() == Some("Bound");
        if !is_bound && bed.is_local() {
            let spec = json!({ "spec": { "volumeName": volume } });
            claims.patch(claim, &PatchParams::default(), &Patch::Merge(spec)).await.unwrap();
            claims.patch_status(claim, &PatchParams::default(), &Patch::Merge(&bound)).await.unwrap();
        }
        is_bound
    })
    .await;
}

async fn dependencies_of_a_selected_object_are_backed_up(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.application("shop", 3).await;
    let (volume, role) = (bed.ns("volume"), bed.ns("role"));
    create(
        bed,
        None,
        json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume },
        "spec": { "capacity": { "storage": "1Mi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
            "hostPath": { "path": "/nowhere" }, "claimRef": { "namespace": shop, "name": "data" } } }),
    )
    .await;
    create(
        bed,
        Some(&shop),
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "labels": { "velero.io/restore-name": "an-earlier-one" } },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
            "resources": { "requests": { "storage": "1Mi" } } } }),
    )
    .await;
    bind(bed, &shop, "data", &volume).await;
    create(
        bed,
        None,
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": role }, "rules": [] }),
    )
    .await;
    create(bed, None, json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": role }, "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "namespace": shop, "name": "account-2" }] }))
    .await;

    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}");
    let names = home.archived("b");
    for expected in [
        format!("resources/persistentvolumes/cluster/{volume}.json"),
        format!("resources/clusterrolebindings.rbac.authorization.k8s.io/cluster/{role}.json"),
        format!("resources/clusterroles.rbac.authorization.k8s.io/cluster/{role}.json"),
    ] {
        assert!(names.contains(&expected), "{expected} is missing in {names:#?}");
    }
    assert!(!names.iter().any(|name| name.ends_with("cluster-admin.json")), "it was not requested: {names:#?}");
    let claim = home.archived_object("b", &format!("resources/persistentvolumeclaims/namespaces/{shop}/data.json"));
    assert_eq!(claim.pointer("/metadata/labels/velero.io~1restore-name"), None, "{claim:#}");
    let items = names.len() as u64 - 1;
    assert_eq!(backup["status"]["progress"]["totalItems"], items, "{backup:#}");
    assert_eq!(backup["status"]["progress"]["itemsBackedUp"], items, "{backup:#}");

    home.backup("none", json!({ "includedNamespaces": [shop], "includeClusterResources": false })).await;
    home.ended("Backup", "none").await;
    let names = home.archived("none");
    assert!(!names.iter().any(|name| name.contains("/cluster/") && !name.contains("/namespaces/")), "{names:#?}");

    for (group, kind, name) in [
        ("rbac.authorization.k8s.io", "ClusterRole", &role),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding", &role),
        ("", "PersistentVolume", &volume),
    ] {
        delete_cluster_wide(bed, group, kind, name).await;
    }
}

async fn ordered_objects_come_first_and_an_unknown_one_is_named(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.application("shop", 9).await;
    let spec = json!({ "includedNamespaces": [shop], "includedResources": ["configmaps"],
        "orderedResources": { "configmaps": format!("{shop}/map-6,{shop}/map-3,{shop}/none") } });
    home.backup("b", spec).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!((phase(&backup), &backup["status"]["warnings"]), ("Completed", &json!(1)), "{backup:#}");
    assert_eq!(home.messages("b", "warnings"), format!("orderedResources: configmaps {shop}/none not found"));
    let maps: Vec<_> = home.archived("b").into_iter().filter(|name| name.contains("/configmaps/")).collect();
    let place = |name: &str| maps.iter().position(|path| path.ends_with(&format!("/{name}.json"))).unwrap();
    assert!(place("map-6") < place("map-3") && place("map-3") < place("map-0"), "{maps:#?}");
    assert_eq!(maps.iter().filter(|path| path.ends_with("/map-6.json")).count(), 1, "{maps:#?}");
}

async fn filter_policies_replace_the_selector(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.application("shop", 9).await;
    let rules = format!(
        "version: v1\nnamespacedFilterPolicies:\n- namespaces: [{shop}]\n  resourceFilters:\n  - kinds: [secrets]\n    names: [secret-1, secret-4]\n"
    );
    create(
        bed,
        Some(&home.namespace),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "rules" },
        "data": { "rules.yaml": rules } }),
    )
    .await;
    let spec = json!({ "includedNamespaces": [shop], "labelSelector": { "matchLabels": { "shard": "0" } },
        "resourcePolicy": { "kind": "configmap", "name": "rules" } });
    home.backup("b", spec).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}");
    let names: Vec<_> =
        home.archived("b").into_iter().filter(|name| name.contains(&format!("/namespaces/{shop}/"))).collect();
    let expected = ["secret-1", "secret-4"].map(|name| format!("resources/secrets/namespaces/{shop}/{name}.json"));
    assert_eq!(names, expected, "secret-1 has another label, and the policy names no maps");
}

async fn a_backup_of_a_missing_namespace_is_an_error(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.application("shop", 3).await;
    home.backup("b", json!({ "includedNamespaces": [shop, "not-there"] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!((phase(&backup), &backup["status"]["errors"]), ("PartiallyFailed", &json!(1)), "{backup:#}");
    assert!(home.messages("b", "errors").contains("included namespace not-there not found"));
    assert!(home.archived("b").iter().any(|name| name.ends_with("map-0.json")), "what can be saved is saved");
}

async fn the_backup_reports_the_defaults_that_the_server_chose(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.application("shop", 3).await;
    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    let backup = home.ended("Backup", "b").await;
    let stored = stored(&home, "b");
    for object in [&backup, &stored] {
        let spec = &object["spec"];
        assert_eq!(spec["ttl"], "720h0m0s", "{object:#}");
        assert_eq!((&spec["csiSnapshotTimeout"], &spec["itemOperationTimeout"]), (&json!("10m0s"), &json!("4h0m0s")));
        assert_eq!(spec["storageLocation"], "default");
        assert_eq!(object["metadata"]["labels"]["velero.io/storage-location"], "default");
        let version = &object["metadata"]["annotations"]["velero.io/source-cluster-k8s-gitversion"];
        assert!(version.as_str().unwrap().starts_with('v'), "{object:#}");
        assert_eq!(object["status"]["hookStatus"], json!({ "hooksAttempted": 0, "hooksFailed": 0 }));
        assert!(
            object["status"]["expiration"].as_str().unwrap() > object["status"]["startTimestamp"].as_str().unwrap()
        );
    }
    assert_eq!(stored["status"]["phase"], "Completed");
}

fn stored(home: &Home<'_>, backup: &str) -> Value {
    let text = std::fs::read(home.bucket.join(format!("backups/{backup}/velero-backup.json"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

async fn an_object_of_the_maximum_size_is_restored_with_its_crd(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.application("shop", 3).await;
    let group = format!("{}.test.plimsoll.dev", bed.ns("big"));
    let definition = format!("blobs.{group}");
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    create(bed, None, json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": definition }, "spec": { "group": group, "scope": "Namespaced",
            "names": { "plural": "blobs", "singular": "blob", "kind": "Blob" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] } }))
    .await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Blob"));
    let blobs: Api<DynamicObject> = Api::namespaced_with(bed.client.clone(), &shop, &resource);
    let blob = json!({ "apiVersion": format!("{group}/v1"), "kind": "Blob", "metadata": { "name": "big" },
        "payload": "0123456789abcdef".repeat(1_400_000 / 16) });
    let blob: DynamicObject = serde_json::from_value(blob).unwrap();
    eventually("the definition is served", async || blobs.create(&PostParams::default(), &blob).await.is_ok()).await;

    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}");
    let name = format!("resources/customresourcedefinitions.apiextensions.k8s.io/cluster/{definition}.json");
    assert!(home.archived("b").contains(&name), "its definition comes with it: {:#?}", home.archived("b"));
    blobs.delete("big", &DeleteParams::default()).await.unwrap();
    home.restore("r", json!({ "backupName": "b", "includedResources": [definition] })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}");
    assert_eq!(blobs.get("big").await.unwrap().data["payload"], blob.data["payload"]);
    delete_cluster_wide(bed, "apiextensions.k8s.io", "CustomResourceDefinition", &definition).await;
}
