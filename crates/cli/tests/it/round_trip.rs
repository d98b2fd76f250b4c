//! Back up, lose everything, restore.

use std::io::Read;

use serde_json::{Value, json};

use crate::bed::{Bed, Home, on_both_clusters, phase};

on_both_clusters! {
    lost_objects_are_restored_equal_and_every_count_agrees,
    the_location_holds_every_file_of_veleros_layout,
    filters_by_namespace_and_label_apply_to_backup_and_restore,
    existing_objects_are_skipped_and_differences_are_warnings,
}

fn read_json(home: &Home<'_>, key: &str) -> Value {
    let bytes = std::fs::read(home.bucket.join(key)).unwrap_or_else(|error| panic!("{key}: {error}"));
    if !key.ends_with("gz") {
        return serde_json::from_slice(&bytes).unwrap();
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

async fn lost_objects_are_restored_equal_and_every_count_agrees(bed: &Bed) {
    let home = bed.home("velero-a").await;
    let _server = home.server();
    bed.application("shop", 60).await;
    bed.application("other", 3).await;
    let before = bed.contents("shop").await;

    home.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}", home.log());
    let progress = &backup["status"]["progress"];
    assert_eq!(progress["totalItems"], progress["itemsBackedUp"], "{progress}");
    assert_eq!(backup["status"]["plimsoll"]["percent"], "100.00");
    assert_eq!(backup["status"]["errors"], 0);

    bed.delete_namespace("shop").await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", home.log());
    let counts = &restore["status"]["progress"];
    assert_eq!(counts["totalItems"], progress["totalItems"], "nothing was excluded");
    let field = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!(field("itemsRestored") + field("itemsSkipped") + field("itemsFailed"), field("totalItems"), "{counts}");
    assert_eq!(bed.contents("shop").await, before);
}

async fn the_location_holds_every_file_of_veleros_layout(bed: &Bed) {
    let home = bed.home("velero-b").await;
    let _server = home.server();
    bed.application("shop", 30).await;
    home.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    let backup = home.ended("Backup", "b").await;
    let mut names: Vec<_> = std::fs::read_dir(home.bucket.join("backups/b"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "b-itemoperations.json.gz",
            "b-logs.gz",
            "b-outcome.json.gz",
            "b-podvolumebackups.json.gz",
            "b-proof.json.gz",
            "b-resource-list.json.gz",
            "b-results.gz",
            "b-volumeinfo.json.gz",
            "b-volumesnapshots.json.gz",
            "b.tar.gz",
            "velero-backup.json",
        ]
    );
    let metadata = read_json(&home, "backups/b/velero-backup.json");
    assert_eq!(metadata["metadata"]["uid"], backup["metadata"]["uid"]);
    assert_eq!(phase(&metadata), "Completed");
    assert_eq!(metadata["status"]["progress"], backup["status"]["progress"]);
    let list = read_json(&home, "backups/b/b-resource-list.json.gz");
    assert_eq!(list["v1/Namespace"], json!([bed.ns("shop")]));
    let listed: usize = list.as_object().unwrap().values().map(|names| names.as_array().unwrap().len()).sum();
    assert_eq!(json!(listed), backup["status"]["progress"]["itemsBackedUp"]);
    let outcome = read_json(&home, "backups/b/b-outcome.json.gz");
    assert_eq!(outcome.as_array().unwrap().len(), listed);
}

async fn filters_by_namespace_and_label_apply_to_backup_and_restore(bed: &Bed) {
    let home = bed.home("velero-c").await;
    let _server = home.server();
    bed.application("shop", 30).await;
    bed.application("shop-db", 3).await;
    home.backup(
        "b",
        json!({ "includedNamespaces": [bed.ns("shop*")], "labelSelector": { "matchLabels": { "shard": "1" } } }),
    )
    .await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}");
    let list = read_json(&home, "backups/b/b-resource-list.json.gz");
    assert_eq!(list["v1/Secret"].as_array().unwrap().len(), 11, "every third object is a secret of shard 1: {list}");
    assert_eq!(list["v1/ConfigMap"], Value::Null);

    home.restore("r", json!({ "backupName": "b", "includedNamespaces": [bed.ns("shop-db")], "namespaceMapping": { bed.ns("shop-db"): bed.ns("copy") } }))
        .await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}");
    let copied = bed.contents("copy").await;
    assert_eq!(copied.keys().collect::<Vec<_>>(), ["Secret/secret-1"]);
}

async fn existing_objects_are_skipped_and_differences_are_warnings(bed: &Bed) {
    let home = bed.home("velero-d").await;
    let _server = home.server();
    bed.application("shop", 9).await;
    home.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    home.ended("Backup", "b").await;
    let api: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(bed.client.clone(), &bed.ns("shop"));
    let patch = kube::api::Patch::Merge(json!({ "data": { "k": "changed" } }));
    api.patch("map-0", &kube::api::PatchParams::default(), &patch).await.unwrap();
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed");
    let counts = &restore["status"]["progress"];
    assert_eq!(counts["itemsSkipped"], counts["totalItems"], "{counts}");
    assert_eq!(restore["status"]["warnings"], 1, "{restore:#}");
    let results = read_json(&home, "restores/r/restore-r-results.gz");
    let warning = results["warnings"]["namespaces"][bed.ns("shop")][0].as_str().unwrap();
    assert!(warning.contains(&format!("v1/ConfigMap {}/map-0", bed.ns("shop"))), "{warning}");
    assert_eq!(bed.contents("shop").await["ConfigMap/map-0"]["content"]["data"]["k"], "changed", "left as it is");
}
