//! Error texts of validation.

use plimsoll_api::validate::{ValidationError, check};
use serde_json::{Value, json};

use crate::round_trip::objects;

fn object(api_version: &str, kind: &str, spec: Value) -> Value {
    let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "demo" } });
    object["spec"] = spec;
    object
}

fn backup(spec: Value) -> Value {
    object("velero.io/v1", "Backup", spec)
}

fn restore(spec: Value) -> Value {
    object("velero.io/v1", "Restore", spec)
}

fn lines(object: &Value) -> String {
    check(object).expect_err("the object is invalid").lines().join("\n")
}

#[test]
fn every_realistic_object_is_valid() {
    for object in objects() {
        assert_eq!(check(&object), Ok(()), "{}", object["kind"]);
    }
}

#[test]
fn a_wrong_type_names_path_found_and_expected() {
    let spec = json!({
        "includedNamespaces": "shop",
        "excludedNamespaces": ["a", 7],
        "snapshotVolumes": "yes",
        "ttl": 3600,
        "labelSelector": ["app=db"],
        "metadata": { "labels": { "a": true } },
        "uploaderConfig": { "parallelFilesUpload": 2.5 },
        "hooks": { "resources": [{ "name": "x", "pre": [{ "exec": { "command": "sync" } }, {}] }, { "name": null }] },
        "storageLocation": { "name": "default" },
    });
    insta::assert_snapshot!(lines(&backup(spec)));
}

#[test]
fn an_invalid_value_names_path_found_and_expected() {
    let spec = json!({
        "ttl": "-1h",
        "csiSnapshotTimeout": "10 minutes",
        "itemOperationTimeout": "4",
        "uploaderConfig": { "parallelFilesUpload": -1 },
        "includedNamespaces": ["*", "shop"],
        "excludedNamespaces": ["*", "shop"],
        "includedResources": ["pods"],
        "includedNamespaceScopedResources": ["pods"],
        "labelSelector": { "matchExpressions": [
            { "key": "a", "operator": "Has" }, { "key": "a", "operator": "In" },
            { "key": "a", "operator": "Exists", "values": ["b"] },
        ] },
        "orLabelSelectors": [{ "matchLabels": { "a": "b" } }],
        "hooks": { "resources": [{ "name": "x", "pre": [{ "exec": { "command": [], "onError": "Panic", "timeout": "" } }] }] },
        "resourcePolicy": { "kind": "Secret", "name": "x" },
        "volumeGroupSnapshotLabelKey": "group",
    });
    insta::assert_snapshot!(lines(&backup(spec)));
}

#[test]
fn an_unknown_spec_field_is_an_error() {
    let spec = json!({ "includeNamespaces": ["shop"], "uploaderConfig": { "threads": 3 } });
    insta::assert_snapshot!(lines(&backup(spec)));
}

#[test]
fn an_unknown_field_is_an_error_in_every_kind() {
    for mut object in objects() {
        assert_eq!(check(&object), Ok(()));
        let fields = if object.get("spec").is_some() { &mut object["spec"] } else { &mut object };
        fields["fromTheFuture"] = json!(1);
        assert!(lines(&object).contains("fromTheFuture: unknown field"), "{}", object["kind"]);
    }
}

#[test]
fn an_unknown_status_field_or_phase_is_accepted() {
    let mut object = backup(json!({}));
    object["status"] = json!({ "phase": "Hibernating", "fromTheFuture": 1 });
    assert_eq!(check(&object), Ok(()));
}

#[test]
fn a_status_of_the_wrong_type_is_an_error() {
    let mut object = backup(json!({}));
    object["status"] = json!({ "errors": "many", "startTimestamp": "yesterday" });
    insta::assert_snapshot!(lines(&object));
}

#[test]
fn a_restore_names_a_backup_or_a_schedule() {
    let mut started = restore(json!({ "backupName": "a", "scheduleName": "b" }));
    insta::assert_snapshot!(format!("{}\n{}", lines(&restore(json!({}))), lines(&started)));
    started["status"] = json!({ "phase": "InProgress" });
    assert_eq!(check(&started), Ok(()), "the server sets the backup of the schedule");
}

#[test]
fn an_existing_resource_policy_is_none_or_update() {
    let spec = json!({ "backupName": "a", "existingResourcePolicy": "replace" });
    insta::assert_snapshot!(lines(&restore(spec)));
}

#[test]
fn errors_of_the_other_velero_kinds() {
    let texts = [
        object("velero.io/v1", "Schedule", json!({ "schedule": " ", "template": { "ttl": "1w", "colour": 1 } })),
        object("velero.io/v1", "Schedule", json!({})),
        object(
            "velero.io/v1",
            "BackupStorageLocation",
            json!({ "provider": "", "accessMode": "WriteOnly",
            "objectStorage": { "bucket": "a/b", "caCert": "eA==", "caCertRef": { "key": "ca" } } }),
        ),
        object("velero.io/v1", "DeleteBackupRequest", json!({ "backupName": "" })),
        object("velero.io/v1", "DownloadRequest", json!({ "target": { "kind": "Everything", "name": "" } })),
        object("velero.io/v1", "PodVolumeBackup", json!({ "uploaderType": "rsync", "volume": null })),
        json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "metadata": { "name": "no-spec" } }),
    ];
    insta::assert_snapshot!(texts.iter().map(lines).collect::<Vec<_>>().join("\n---\n"));
}

#[test]
fn errors_of_the_kanister_kinds() {
    let phase = |name: &str| json!({ "func": "KubeExec", "name": name });
    let texts = [
        object(
            "cr.kanister.io/v1alpha1",
            "ActionSet",
            json!({ "actions": [
            { "name": "", "object": { "kind": "Gadget" }, "options": { "n": 1 } } ] }),
        ),
        json!({ "apiVersion": "cr.kanister.io/v1alpha1", "kind": "Blueprint", "metadata": { "name": "demo" }, "actions": {
            "backup": { "phases": [phase("a"), phase("a"), {}], "defer": {} }, "restore": { "deferPhase": phase("a") } } }),
        json!({ "apiVersion": "cr.kanister.io/v1alpha1", "kind": "Profile", "metadata": { "name": "demo" },
            "location": { "type": "ftp" }, "credential": { "type": "keyPair" }, "skipSSLVerify": "no" }),
    ];
    insta::assert_snapshot!(texts.iter().map(lines).collect::<Vec<_>>().join("\n---\n"));
}

#[test]
fn the_error_names_the_object_and_has_a_stable_reason() {
    let error = check(&backup(json!({ "ttl": "x" }))).unwrap_err();
    assert_eq!((error.reason(), error.is_retryable()), ("FailedValidation", false));
    insta::assert_snapshot!(error);
}

#[test]
fn an_unknown_kind_is_an_error() {
    let error = check(&object("velero.io/v9", "Backup", json!({}))).unwrap_err();
    assert_eq!(error.reason(), "UnknownKind");
    insta::assert_snapshot!(error);
    assert!(matches!(check(&json!("text")), Err(ValidationError::UnknownKind { .. })));
}

#[test]
fn long_user_text_is_shortened() {
    let text = lines(&backup(json!({ "ttl": { "x": 1 }, "hooks": { "resources": [{ "name": "x", "pre": [
        { "exec": { "command": ["a"], "onError": "é".repeat(5000) } }] }] } })));
    assert!(text.lines().all(|line| line.chars().count() < 300), "{text}");
}
