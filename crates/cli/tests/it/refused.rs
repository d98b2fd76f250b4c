//! Bad input gets a clear answer, and nothing is lost.

use serde_json::{Value, json};

use crate::bed::{Bed, Home, on_both_clusters, phase};

on_both_clusters! {
    unsupported_fields_are_refused_by_name,
    an_existing_backup_in_the_location_is_not_overwritten,
    a_restore_from_a_damaged_archive_fails_and_creates_no_objects,
    a_missing_location_is_unavailable_with_the_reason,
}

async fn refused(home: &Home<'_>, kind: &str, name: &str, spec: Value) -> String {
    home.create(json!({ "apiVersion": "velero.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec }))
        .await
        .unwrap();
    let object = home.ended(kind, name).await;
    assert_eq!(phase(&object), "FailedValidation", "{object:#}");
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let complete = conditions.iter().find(|condition| condition["type"] == "Complete");
    assert!(
        complete.is_some_and(|it| it["status"] == "True" && it["reason"] == "FailedValidation"),
        "it must end, because clients wait for it: {object:#}"
    );
    object["status"]["validationErrors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_str().unwrap().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

async fn unsupported_fields_are_refused_by_name(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let cases = [
        ("Backup", json!({ "storageLocation": "nowhere" }), "BackupStorageLocation nowhere not found"),
        (
            "Backup",
            json!({ "resourcePolicy": { "kind": "configmap", "name": "rules" } }),
            "spec.resourcePolicy: ConfigMap rules not found",
        ),
        ("Backup", json!({ "resourcePolicy": { "kind": "Secret", "name": "rules" } }), "spec.resourcePolicy.kind"),
        (
            "Backup",
            json!({ "volumeSnapshotLocations": ["none"] }),
            "spec.volumeSnapshotLocations: VolumeSnapshotLocation none not found",
        ),
        ("Backup", json!({ "inclodedNamespaces": ["x"] }), "inclodedNamespaces"),
        (
            "Backup",
            json!({ "labelSelector": { "matchLabels": { "a": "b" } }, "orLabelSelectors": [{ "matchLabels": { "c": "d" } }] }),
            "orLabelSelectors",
        ),
        ("Restore", json!({ "backupName": "none" }), "backup none not found"),
        ("Restore", json!({}), "backupName"),
        ("Restore", json!({ "backupName": "none", "existingResourcePolicy": "replace" }), "existingResourcePolicy"),
    ];
    for (number, (kind, spec, expected)) in cases.into_iter().enumerate() {
        let text = refused(&home, kind, &format!("case-{number}"), spec.clone()).await;
        assert!(text.contains(expected), "{spec}: {text}");
    }
}

async fn an_existing_backup_in_the_location_is_not_overwritten(bed: &Bed) {
    let (one, two) = (bed.home("one").await, bed.home("two").await);
    let _server = one.server();
    bed.application("shop", 3).await;
    one.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    one.ended("Backup", "b").await;
    let metadata = std::fs::read(one.bucket.join("backups/b/velero-backup.json")).unwrap();
    std::fs::create_dir_all(two.bucket.join("backups/b")).unwrap();
    std::fs::write(two.bucket.join("backups/b/velero-backup.json"), &metadata).unwrap();
    let _other = two.server();
    two.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    let backup = two.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Failed");
    let reason = backup["status"]["failureReason"].as_str().unwrap();
    assert!(reason.contains("backup b already exists in location"), "{reason}");
    assert_eq!(std::fs::read(two.bucket.join("backups/b/velero-backup.json")).unwrap(), metadata, "not touched");
}

async fn a_restore_from_a_damaged_archive_fails_and_creates_no_objects(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 30).await;
    home.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    home.ended("Backup", "b").await;
    let file = home.bucket.join("backups/b/b.tar.gz");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    home.restore("r", json!({ "backupName": "b", "namespaceMapping": { bed.ns("shop"): bed.ns("copy") } })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Failed");
    let reason = restore["status"]["failureReason"].as_str().unwrap();
    assert!(reason.contains("b.tar.gz") && reason.contains("truncated"), "{reason}");
    assert!(bed.contents("copy").await.is_empty());
}

async fn a_missing_location_is_unavailable_with_the_reason(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    home.create(json!({ "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation", "metadata": { "name": "gone" },
        "spec": { "provider": "directory", "objectStorage": { "bucket": "/nonexistent/backups" } } }))
        .await
        .unwrap();
    let text = {
        let mut text = String::new();
        crate::bed::eventually("the location is checked", async || {
            let location = home.get("BackupStorageLocation", "gone").await;
            location["status"]["message"].as_str().unwrap_or_default().clone_into(&mut text);
            phase(&location) == "Unavailable"
        })
        .await;
        text
    };
    assert!(text.contains("/nonexistent/backups"), "{text}");
    let why = refused(&home, "Backup", "b", json!({ "storageLocation": "gone" })).await;
    assert!(why.contains("BackupStorageLocation gone is unavailable"), "{why}");
}
