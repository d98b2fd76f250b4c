//! Every field of a Restore does what its users know it to do.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, condition_status, eventually, on_both_clusters, phase};
use crate::planted::{Planted, assert_restored, config_map, counts, create, objects, read, restore_log, restored_file};

on_both_clusters! {
    objects_are_changed_by_the_built_in_actions,
    dependencies_of_a_selected_object_are_restored_first_and_counted_once,
    existing_objects_are_kept_or_updated_according_to_the_policy,
    modifiers_and_policies_of_config_maps_are_applied,
    the_default_modifier_of_the_server_is_applied_and_its_faults_are_warnings,
    a_schedule_refers_to_its_latest_completed_backup,
    mapped_namespaces_are_restored_with_labels_and_annotations,
    status_is_restored_where_the_spec_or_the_object_asks_for_it,
    volumes_are_restored_as_objects_or_provisioned_again,
    skipped_items_have_reasons_in_the_list_and_in_the_log,
    fields_that_cannot_be_honoured_are_refused_by_name,
    completion_is_reported_by_conditions_and_events,
}

async fn restored(home: &Home<'_>, name: &str, spec: Value) -> Value {
    home.restore(name, spec).await;
    home.ended("Restore", name).await
}

fn service(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": namespace, "uid": "old" }, "spec": spec })
}

async fn objects_are_changed_by_the_built_in_actions(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let (old, new) = (bed.ns("old"), bed.ns("new"));
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "b", "namespace": old },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r" },
        "subjects": [{ "kind": "ServiceAccount", "name": "s", "namespace": old }] });
    let identity = json!({ "batch.kubernetes.io/controller-uid": "1", "app": "x" });
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j", "namespace": old },
        "spec": { "suspend": true, "selector": { "matchLabels": { "batch.kubernetes.io/controller-uid": "1" } },
            "template": { "metadata": { "labels": identity },
                "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "old.example.com/x:1" }] } } } });
    let token = json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": { "name": "robot-token-abcde", "namespace": old,
            "annotations": { "kubernetes.io/service-account.name": "robot", "kubernetes.io/service-account.uid": "1" } },
        "data": { "token": "eA==" } });
    let robot = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "robot", "namespace": old },
        "secrets": [{ "name": "robot-token-abcde" }, { "name": "mine" }] });
    Planted::new()
        .object(
            "services",
            &service(
                &old,
                "web",
                &json!({ "type": "NodePort", "clusterIP": "10.255.0.1", "clusterIPs": ["10.255.0.1"],
            "ports": [{ "port": 80, "nodePort": 30999, "protocol": "TCP" }] }),
            ),
        )
        .object("services", &service(&old, "headless", &json!({ "clusterIP": "None", "ports": [{ "port": 80 }] })))
        .object("rolebindings.rbac.authorization.k8s.io", &binding)
        .object("jobs.batch", &job)
        .object("secrets", &token)
        .object("serviceaccounts", &robot)
        .plant(&home, "b")
        .await;
    home.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "images",
        "labels": { "velero.io/plugin-config": "", "velero.io/change-image-name": "RestoreItemAction" } },
        "data": { "case": "old.example.com,new.example.com" } }))
        .await
        .unwrap();
    let restore = restored(&home, "r", json!({ "backupName": "b", "namespaceMapping": { old.clone(): new } })).await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", restore_log(&home, "r"));
    assert_eq!(counts(&restore), [6, 5, 1, 0], "the token of an account that is there is left out");

    let of =
        async |api_version: &str, kind: &str, name: &str| read(bed, api_version, kind, Some(&new), name).await.unwrap();
    let web = of("v1", "Service", "web").await;
    assert_ne!(web["spec"]["clusterIP"], "10.255.0.1", "{web:#}");
    assert_ne!(web["spec"]["ports"][0]["nodePort"], 30999, "{web:#}");
    assert_eq!(of("v1", "Service", "headless").await["spec"]["clusterIP"], "None");
    assert_eq!(of("rbac.authorization.k8s.io/v1", "RoleBinding", "b").await["subjects"][0]["namespace"], json!(new));
    let job = of("batch/v1", "Job", "j").await;
    assert_ne!(job["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/controller-uid"], "1", "{job:#}");
    assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["image"], "new.example.com/x:1");
    assert_eq!(of("v1", "ServiceAccount", "robot").await["secrets"], json!([{ "name": "mine" }]));
    assert!(read(bed, "v1", "Secret", Some(&new), "robot-token-abcde").await.is_none());
    for (kind, name) in [("Service", "web"), ("ServiceAccount", "robot")] {
        let labels = of("v1", kind, name).await["metadata"]["labels"].clone();
        assert_eq!((&labels["velero.io/backup-name"], &labels["velero.io/restore-name"]), (&json!("b"), &json!("r")));
    }

    let preserved = restored(
        &home,
        "keep",
        json!({ "backupName": "b", "namespaceMapping": { old.clone(): bed.ns("kept") },
        "includedResources": ["services"], "preserveNodePorts": true }),
    )
    .await;
    assert_eq!(phase(&preserved), "Completed", "{preserved:#}");
    let web = read(bed, "v1", "Service", Some(&bed.ns("kept")), "web").await.unwrap();
    assert_eq!(web["spec"]["ports"][0]["nodePort"], 30999, "{web:#}");
}

fn claimed(shop: &str, volume: &str) -> (Value, Value, Value) {
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data", "namespace": shop },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand", "volumeName": volume,
            "resources": { "requests": { "storage": "1Mi" } } }, "status": { "phase": "Bound" } });
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume },
        "spec": { "capacity": { "storage": "1Mi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": { "path": "/nowhere" },
            "claimRef": { "namespace": shop, "name": "data", "uid": "old", "resourceVersion": "1" } } });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": shop, "labels": { "app": "x" } },
        "spec": { "nodeName": "gone", "priority": 1_000_000, "nodeSelector": { "never": "here" }, "containers": [{ "name": "c", "image": "none" }],
            "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } },
                { "name": "w", "persistentVolumeClaim": { "claimName": "absent" } }] } });
    (claim, volume, pod)
}

async fn dependencies_of_a_selected_object_are_restored_first_and_counted_once(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let (shop, volume) = (bed.ns("shop"), bed.ns("volume"));
    let (claim, pv, pod) = claimed(&shop, &volume);
    let mut second = pod.clone();
    second["metadata"]["name"] = json!("q");
    Planted::new()
        .object("pods", &pod)
        .object("pods", &second)
        .object("persistentvolumeclaims", &claim)
        .object("persistentvolumes", &pv)
        .object("configmaps", &config_map(&shop, "unneeded", "x"))
        .plant(&home, "b")
        .await;
    let spec =
        json!({ "backupName": "b", "includedNamespaces": [shop], "labelSelector": { "matchLabels": { "app": "x" } } });
    let restore = restored(&home, "r", spec).await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", restore_log(&home, "r"));
    assert_eq!(
        counts(&restore),
        [4, 4, 0, 0],
        "two pods; their claim and its volume once: {}",
        restore_log(&home, "r")
    );
    assert_eq!(restore["status"]["warnings"], 2, "a claim that is not in the backup, for each pod: {restore:#}");
    let warnings = restored_file(&home, "r", "results.gz")["warnings"].to_string();
    assert!(warnings.contains("absent") && warnings.contains("not found in the backup"), "{warnings}");
    assert!(read(bed, "v1", "ConfigMap", Some(&shop), "unneeded").await.is_none());
    let back = read(bed, "v1", "PersistentVolume", None, &volume).await.unwrap();
    let claim_ref = &back["spec"]["claimRef"];
    assert!(claim_ref["namespace"] == json!(shop) && claim_ref["uid"] != "old", "{back:#}");
    let pod = read(bed, "v1", "Pod", Some(&shop), "p").await.unwrap();
    assert_ne!(pod["spec"]["nodeName"], "gone");

    let without = json!({ "backupName": "b", "includedNamespaces": [shop], "excludedResources": ["persistentvolumeclaims"],
        "labelSelector": { "matchLabels": { "app": "x" } }, "namespaceMapping": { shop.clone(): bed.ns("copy") } });
    let restore = restored(&home, "without", without).await;
    assert_eq!(counts(&restore), [2, 2, 0, 0], "an excluded resource is not restored on request: {restore:#}");
    let _ = objects(bed, "v1", "PersistentVolume", None).delete(&volume, &DeleteParams::default()).await;
}

async fn existing_objects_are_kept_or_updated_according_to_the_policy(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.application("shop", 0).await;
    let fixed = |value: &str| {
        let mut map = config_map(&shop, "fixed", value);
        map["immutable"] = json!(true);
        map
    };
    for name in ["same", "changed"] {
        create(bed, &config_map(&shop, name, "as backed up")).await;
    }
    create(bed, &fixed("here")).await;
    create(
        bed,
        &json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "robot", "namespace": shop },
        "imagePullSecrets": [{ "name": "here" }] }),
    )
    .await;
    Planted::new()
        .object("configmaps", &config_map(&shop, "same", "as backed up"))
        .object("configmaps", &config_map(&shop, "changed", "before"))
        .object("configmaps", &fixed("before"))
        .object(
            "serviceaccounts",
            &json!({ "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "robot", "namespace": shop, "annotations": { "note": "backed up" } },
            "imagePullSecrets": [{ "name": "backed-up" }] }),
        )
        .plant(&home, "b")
        .await;
    let none = restored(&home, "none", json!({ "backupName": "b", "excludedResources": ["serviceaccounts"] })).await;
    assert_eq!((counts(&none), &none["status"]["warnings"]), ([3, 0, 3, 0], &json!(2)), "{none:#}");
    assert_eq!(read(bed, "v1", "ConfigMap", Some(&shop), "changed").await.unwrap()["data"]["k"], "as backed up");

    let update = restored(&home, "update", json!({ "backupName": "b", "existingResourcePolicy": "update" })).await;
    assert_eq!(phase(&update), "Completed", "{update:#}");
    // The embedded cluster does not know of maps that cannot be changed.
    let (fixed, left_alone) = if bed.is_local() { ("updated", 1) } else { ("skipped", 2) };
    assert_eq!(counts(&update), [4, 4 - left_alone, left_alone, 0], "{}", restore_log(&home, "update"));
    let list = restored_file(&home, "update", "resource-list.json.gz");
    assert_eq!(
        list["v1/ConfigMap"],
        json!([format!("{shop}/changed(updated)"), format!("{shop}/fixed({fixed})"), format!("{shop}/same(skipped)")])
    );
    let of = async |kind: &str, name: &str| read(bed, "v1", kind, Some(&shop), name).await.unwrap();
    assert_eq!(of("ConfigMap", "changed").await["data"]["k"], "before");
    assert_eq!(
        of("ConfigMap", "same").await["metadata"]["labels"]["velero.io/restore-name"],
        "update",
        "labels are refreshed"
    );
    assert_eq!(of("ConfigMap", "fixed").await["data"]["k"], if bed.is_local() { "before" } else { "here" });
    assert_eq!(of("ConfigMap", "fixed").await["metadata"]["labels"]["velero.io/restore-name"], "update");
    let robot = of("ServiceAccount", "robot").await;
    assert_eq!(robot["imagePullSecrets"], json!([{ "name": "here" }, { "name": "backed-up" }]), "merged");
    assert_eq!(robot["metadata"]["annotations"]["note"], "backed up");
}

async fn modifiers_and_policies_of_config_maps_are_applied(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let (shop, copy) = (bed.ns("shop"), bed.ns("copy"));
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": shop },
        "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "x" } }, "template": { "metadata": { "labels": { "app": "x" } },
            "spec": { "containers": [{ "name": "c", "image": "old" }] } } } });
    Planted::new()
        .object("configmaps", &config_map(&shop, "patched", "1"))
        .object("configmaps", &config_map(&shop, "merged", "1"))
        .object("configmaps", &config_map(&shop, "hopeless", "1"))
        .object("configmaps", &config_map(&shop, "unwanted", "1"))
        .object("deployments.apps", &deployment)
        .plant(&home, "b")
        .await;
    let rules = "version: v1\nresourceModifierRules:\n\
        - conditions: {groupResource: configmaps, resourceNameRegex: ^patched$}\n  patches: [{operation: replace, path: /data/k, value: patched}]\n\
        - conditions: {groupResource: configmaps, resourceNameRegex: ^merged$}\n  mergePatches: [{patchData: '{\"data\":{\"k\":null,\"l\":\"merged\"}}'}]\n\
        - conditions: {groupResource: configmaps, resourceNameRegex: ^hopeless$}\n  patches: [{operation: remove, path: /data/absent}]\n\
        - conditions: {groupResource: deployments.apps}\n  strategicPatches: [{patchData: '{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"new\"}]}}}}'}]\n";
    let policy = format!(
        "version: v1\nnamespacedFilterPolicies:\n- namespaces: [{shop}]\n  resourceFilters:\n  - kinds: [configmaps]\n    excludedNames: [unwanted]\n  - kinds: [deployments.apps]\n"
    );
    for (name, text) in [("modifiers", rules), ("policy", policy.as_str()), ("broken", "version: v9")] {
        home.create(
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "rules": text } }),
        )
        .await
        .unwrap();
    }
    let reference = |name: &str| json!({ "kind": "ConfigMap", "name": name });
    let restore = restored(
        &home,
        "r",
        json!({ "backupName": "b", "namespaceMapping": { shop.clone(): copy },
        "resourceModifier": reference("modifiers"), "resourcePolicy": reference("policy") }),
    )
    .await;
    assert_eq!(phase(&restore), "PartiallyFailed", "{restore:#}\n{}", restore_log(&home, "r"));
    assert_eq!(counts(&restore), [4, 3, 0, 1], "one is left out by the policy: {}", restore_log(&home, "r"));
    let of = async |api_version: &str, kind: &str, name: &str| read(bed, api_version, kind, Some(&copy), name).await;
    assert_eq!(of("v1", "ConfigMap", "patched").await.unwrap()["data"]["k"], "patched");
    assert_eq!(of("v1", "ConfigMap", "merged").await.unwrap()["data"], json!({ "l": "merged" }));
    assert!(of("v1", "ConfigMap", "hopeless").await.is_none(), "not created without the change that was asked for");
    assert!(of("v1", "ConfigMap", "unwanted").await.is_none());
    let image =
        &of("apps/v1", "Deployment", "web").await.unwrap()["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "new");
    for (field, name) in [("resourceModifier", "broken"), ("resourceModifier", "absent"), ("resourcePolicy", "broken")]
    {
        let refused = restored(
            &home,
            &format!("{}-{name}", field.to_lowercase()),
            json!({ "backupName": "b", field: reference(name) }),
        )
        .await;
        assert_eq!(phase(&refused), "FailedValidation", "{refused:#}");
        let errors = refused["status"]["validationErrors"].to_string();
        assert!(errors.contains(&format!("spec.{field}")) && errors.contains(name), "{errors}");
    }
}

async fn a_schedule_refers_to_its_latest_completed_backup(bed: &Bed) {
    let home = bed.home("home").await;
    let shop = bed.ns("shop");
    for (name, value) in [("first", "1"), ("second", "2")] {
        let planted = Planted::new().object("configmaps", &config_map(&shop, "map", value));
        planted.label("velero.io/schedule-name", "daily").plant(&home, name).await;
    }
    home.patch("Backup", "second", json!({ "status": { "startTimestamp": "2026-02-01T00:00:00Z" } })).await;
    let bad = Planted::new().object("configmaps", &config_map(&shop, "map", "3"));
    bad.label("velero.io/schedule-name", "daily").plant(&home, "third").await;
    home.patch(
        "Backup",
        "third",
        json!({ "status": { "phase": "PartiallyFailed", "startTimestamp": "2026-03-01T00:00:00Z" } }),
    )
    .await;
    let _server = home.server();
    let restore = restored(&home, "r", json!({ "scheduleName": "daily" })).await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}");
    assert_eq!(restore["spec"]["backupName"], "second");
    assert_eq!(read(bed, "v1", "ConfigMap", Some(&shop), "map").await.unwrap()["data"]["k"], "2");
    let none = restored(&home, "none", json!({ "scheduleName": "weekly" })).await;
    assert_eq!(phase(&none), "FailedValidation");
    assert!(none["status"]["validationErrors"].to_string().contains("schedule weekly has no backups"), "{none:#}");
}

async fn mapped_namespaces_are_restored_with_labels_and_annotations(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let (shop, copy, other) = (bed.ns("shop"), bed.ns("copy"), bed.ns("other"));
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": shop, "uid": "old",
        "labels": { "team": "a", "kubernetes.io/metadata.name": shop }, "annotations": { "note": "kept" } } });
    Planted::new()
        .object("namespaces", &namespace)
        .object("configmaps", &config_map(&shop, "map", "1"))
        .plant(&home, "b")
        .await;
    let whole =
        restored(&home, "whole", json!({ "backupName": "b", "namespaceMapping": { shop.clone(): copy } })).await;
    assert_eq!((phase(&whole), counts(&whole)), ("Completed", [2, 2, 0, 0]), "{whole:#}");
    assert!(read(bed, "v1", "Namespace", None, &shop).await.is_none(), "only under its new name");
    // The object of the namespace is not selected here: it is made from the backup's all the same.
    let part = restored(
        &home,
        "part",
        json!({ "backupName": "b", "includedNamespaces": [shop], "namespaceMapping": { shop.clone(): other } }),
    )
    .await;
    assert_eq!((phase(&part), counts(&part)), ("Completed", [1, 1, 0, 0]), "{part:#}");
    for name in [copy, other] {
        let made = read(bed, "v1", "Namespace", None, &name).await.unwrap();
        assert_eq!(
            (&made["metadata"]["labels"]["team"], &made["metadata"]["annotations"]["note"]),
            (&json!("a"), &json!("kept"))
        );
    }
    let again =
        restored(&home, "again", json!({ "backupName": "b", "namespaceMapping": { shop.clone(): bed.ns("copy") } }))
            .await;
    assert_eq!((phase(&again), counts(&again)), ("Completed", [2, 0, 2, 0]), "{again:#}");
}

async fn status_is_restored_where_the_spec_or_the_object_asks_for_it(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.ns("shop");
    let status = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
    let balancer = |name: &str, annotation: Option<&str>| {
        let mut object = service(&shop, name, &json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] }));
        object["status"] = status.clone();
        if let Some(annotation) = annotation {
            object["metadata"]["annotations"] = json!({ "velero.io/restore-status": annotation });
        }
        object
    };
    Planted::new()
        .object("services", &balancer("plain", None))
        .object("services", &balancer("asks", Some("true")))
        .object("services", &balancer("declines", Some("false")))
        .plant(&home, "b")
        .await;
    let address = async |namespace: &str, name: &str| {
        let found = read(bed, "v1", "Service", Some(namespace), name).await.unwrap();
        found.pointer("/status/loadBalancer/ingress/0/ip").cloned().unwrap_or_default()
    };
    let default = restored(&home, "default", json!({ "backupName": "b" })).await;
    assert_eq!(
        (phase(&default), &default["status"]["warnings"]),
        ("Completed", &json!(0)),
        "{}",
        restore_log(&home, "default")
    );
    let found = [address(&shop, "plain").await, address(&shop, "asks").await, address(&shop, "declines").await];
    assert_eq!(found, [Value::Null, json!("192.0.2.1"), Value::Null]);
    let copy = bed.ns("copy");
    let all = restored(
        &home,
        "all",
        json!({ "backupName": "b", "namespaceMapping": { shop.clone(): copy },
        "restoreStatus": { "includedResources": ["svc"] } }),
    )
    .await;
    assert_eq!(phase(&all), "Completed");
    let found = [address(&copy, "plain").await, address(&copy, "asks").await, address(&copy, "declines").await];
    assert_eq!(found, [json!("192.0.2.1"), json!("192.0.2.1"), Value::Null]);
}

async fn volumes_are_restored_as_objects_or_provisioned_again(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.ns("shop");
    let names = ["kept", "anew", "files", "native"].map(|name| bed.ns(name));
    let mut planted = Planted::new();
    for (name, policy) in names.iter().zip(["Retain", "Delete", "Retain", "Retain"]) {
        let (mut claim, mut volume, _) = claimed(&shop, name);
        claim["metadata"]["name"] = json!(name);
        volume["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
        volume["spec"]["claimRef"]["name"] = json!(name);
        planted = planted.object("persistentvolumeclaims", &claim).object("persistentvolumes", &volume);
    }
    let info = |name: &str, method: &str| json!({ "pvName": name, "pvcNamespace": shop, "pvcName": name, "backupMethod": method });
    planted
        .beside("volumeinfo.json.gz", &json!([info(&names[2], "PodVolumeBackup"), info(&names[3], "NativeSnapshot")]))
        .plant(&home, "b")
        .await;
    let restore = restored(&home, "r", json!({ "backupName": "b" })).await;
    assert_eq!(phase(&restore), "PartiallyFailed", "{restore:#}\n{}", restore_log(&home, "r"));
    assert_eq!(counts(&restore), [8, 5, 2, 1], "{}", restore_log(&home, "r"));
    let errors = restored_file(&home, "r", "results.gz")["errors"].to_string();
    assert!(errors.contains(&names[2]) && errors.contains("its claim gets an empty volume"), "{errors}");
    assert!(errors.contains(&names[3]) && errors.contains("restorePVs: false"), "{errors}");
    let volume_of = async |claim: &str| {
        let found = read(bed, "v1", "PersistentVolumeClaim", Some(&shop), claim).await.unwrap();
        found["spec"]["volumeName"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(volume_of(&names[0]).await, names[0], "a volume that is kept is bound to again");
    assert_eq!(volume_of(&names[1]).await, "", "its class provisions a new one");
    assert_eq!(volume_of(&names[2]).await, "");
    assert!(read(bed, "v1", "PersistentVolume", None, &names[0]).await.is_some());
    assert!(read(bed, "v1", "PersistentVolume", None, &names[1]).await.is_none());
    let without = json!({ "backupName": "b", "restorePVs": false, "includedResources": ["persistentvolumes"] });
    let restore = restored(&home, "without", without).await;
    assert_eq!(phase(&restore), "Completed", "without the data nothing is missing: {restore:#}");
    for name in &names {
        let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let volumes = objects(bed, "v1", "PersistentVolume", None);
        let _ = volumes.delete(name, &DeleteParams::default()).await;
        let _ = volumes.patch(name, &PatchParams::default(), &release).await;
    }
}

async fn skipped_items_have_reasons_in_the_list_and_in_the_log(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let shop = bed.application("shop", 0).await;
    create(bed, &config_map(&shop, "same", "1")).await;
    create(bed, &config_map(&shop, "other", "here")).await;
    let pod = |name: &str, extra: Value| {
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": shop },
            "spec": { "containers": [{ "name": "c", "image": "none" }] } });
        plimsoll_select::merge_patch::apply_in_place(&mut pod, &extra);
        pod
    };
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "done", "namespace": shop },
        "spec": { "template": {} }, "status": { "completionTime": "2026-01-01T00:00:00Z" } });
    Planted::new()
        .object("configmaps", &config_map(&shop, "same", "1"))
        .object("configmaps", &config_map(&shop, "other", "backed up"))
        .object("pods", &pod("finished", json!({ "status": { "phase": "Succeeded" } })))
        .object(
            "pods",
            &pod("mirror", json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "x" } } })),
        )
        .object("jobs.batch", &job)
        .object(
            "volumepluginbackups.velero.io",
            &json!({ "apiVersion": "velero.io/v1", "kind": "VolumePluginBackup",
            "metadata": { "name": "never", "namespace": shop } }),
        )
        .plant(&home, "b")
        .await;
    let restore = restored(&home, "r", json!({ "backupName": "b" })).await;
    assert_restored(&home, &restore, ("Completed", [5, 0, 5, 0]));
    assert_eq!(restore["status"]["warnings"], 1);
    let list = restored_file(&home, "r", "resource-list.json.gz");
    let entries: Vec<&Value> = list.as_object().unwrap().values().flat_map(|names| names.as_array().unwrap()).collect();
    assert!(entries.len() == 5 && entries.iter().all(|entry| entry.as_str().unwrap().ends_with("(skipped)")), "{list}");
    let log = restore_log(&home, "r");
    for reason in ["AlreadyExists", "AlreadyExistsAndDiffers", "FinishedPod", "MirrorPod", "FinishedJob"] {
        assert!(log.contains(&format!("skipped: {reason}")), "{reason}: {log}");
    }
    assert!(log.contains("5 items selected, 1 excluded by filters"), "{log}");
}

async fn the_default_modifier_of_the_server_is_applied_and_its_faults_are_warnings(bed: &Bed) {
    let home = bed.home("home").await;
    let arguments = ["--lease-duration", "15s", "--default-resource-modifier-configmap", "defaults"];
    let _server = home.server_through(&bed.kubeconfig, &arguments, &[]);
    let shop = bed.ns("shop");
    Planted::new().object("configmaps", &config_map(&shop, "map", "old")).plant(&home, "b").await;
    let rule = |value: &str| {
        format!(
            "version: v1\nresourceModifierRules:\n- conditions: {{groupResource: configmaps}}\n  patches: [{{operation: replace, path: /data/k, value: {value}}}]\n"
        )
    };
    let rules = async |name: &str, text: String| {
        let map =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "rules": text } });
        home.create(map).await.unwrap();
    };
    let restored_value = async |name: &str, more: Value| {
        let target = bed.ns(name);
        let mut spec = json!({ "backupName": "b", "namespaceMapping": { shop.clone(): target.clone() } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let restore = restored(&home, name, spec).await;
        assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", restore_log(&home, name));
        let map = read(bed, "v1", "ConfigMap", Some(&target), "map").await.unwrap();
        (map["data"]["k"].clone(), restore["status"]["warnings"].as_u64().unwrap_or(0))
    };
    assert_eq!(restored_value("early", json!({})).await, (json!("old"), 1));
    let log = restore_log(&home, "early");
    let expected = "the default resource modifier is not applied: --default-resource-modifier-configmap: ConfigMap defaults not found";
    assert!(log.contains(expected), "{log}");
    rules("defaults", rule("default")).await;
    rules("own", rule("own")).await;
    assert_eq!(restored_value("later", json!({})).await, (json!("default"), 0));
    let own = json!({ "resourceModifier": { "kind": "ConfigMap", "name": "own" } });
    assert_eq!(restored_value("named", own).await, (json!("own"), 0));
}

async fn fields_that_cannot_be_honoured_are_refused_by_name(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    Planted::new().plant(&home, "b").await;
    let init = |container: Value| json!({ "resources": [{ "name": "h", "postHooks": [{ "init": { "initContainers": [container] } }] }] });
    let cases = [
        (json!({ "backupName": "b", "includedResources": ["nodes"] }), "nodes are never restored"),
        (json!({ "backupName": "b", "hooks": init(json!({ "name": "x" })) }), "needs name, image and command"),
        (json!({ "backupName": "b", "includedNamespaces": ["a", "*"] }), "includedNamespaces"),
        (json!({ "backupName": "b", "resourceModifier": { "kind": "Secret", "name": "x" } }), "resourceModifier"),
        (json!({ "backupName": "b", "scheduleName": "s" }), "exactly one of backupName, scheduleName"),
    ];
    for (number, (spec, expected)) in cases.into_iter().enumerate() {
        let restore = restored(&home, &format!("case-{number}"), spec).await;
        assert_eq!(phase(&restore), "FailedValidation", "{restore:#}");
        let errors = restore["status"]["validationErrors"].to_string();
        assert!(errors.contains(expected), "{errors}");
    }
    let empty = restored(&home, "empty", json!({ "backupName": "b" })).await;
    assert_eq!((phase(&empty), counts(&empty)), ("Completed", [0, 0, 0, 0]), "nothing to restore is no failure");
}

async fn completion_is_reported_by_conditions_and_events(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    Planted::new().object("configmaps", &config_map(&bed.ns("shop"), "map", "1")).plant(&home, "b").await;
    let restore = restored(&home, "r", json!({ "backupName": "b" })).await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", restore_log(&home, "r"));
    let statuses = |object: &Value| {
        ["Complete", "Progressing", "ProgressStalled"].map(|condition| condition_status(object, condition))
    };
    let good = [Some(true), Some(false), Some(false)];
    assert_eq!(statuses(&restore), good, "{restore:#}");
    let conditions = restore["status"]["conditions"].as_array().unwrap();
    let complete = conditions.iter().find(|condition| condition["type"] == "Complete").unwrap();
    assert_eq!(complete["reason"], "Succeeded", "{restore:#}");
    eventually("its Operation says the same", async || statuses(&home.get("Operation", "restore-r").await) == good)
        .await;
    eventually("its start and its end have their Events", async || {
        let events = home.events("Restore", "r").await;
        ["Started", "Succeeded"].iter().all(|reason| events.iter().any(|known| known == reason))
    })
    .await;
}
