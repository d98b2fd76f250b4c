//! Snapshot locations on the command line.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::PostParams;
use plimsoll_testkit::{cache, require};
use serde_json::json;

use super::{plugin_directory, server};
use crate::bed::{Bed, Home, phase};

async fn ours(home: &Home<'_>, arguments: &[&str]) -> String {
    let output = home.command(arguments).output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_locations_are_created_changed_and_listed_by_both_command_lines() {
    require!(cache::program("velero"));
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let more = ["--provider", "aws", "--config", "region=eu-1", "--credential", "keys=cloud", "--labels", "team=shop"];
    ours(&home, &[&["snapshot-location", "create", "ours"], &more[..]].concat()).await;
    home.velero(&[&["snapshot-location", "create", "theirs"], &more[..]].concat()).await;
    let made = async |name: &str| {
        let found = home.get("VolumeSnapshotLocation", name).await;
        (found["spec"].clone(), found["metadata"]["labels"].clone())
    };
    assert_eq!(made("ours").await, made("theirs").await);
    ours(&home, &["snapshot-location", "set", "theirs", "--credential", "other=cloud"]).await;
    home.velero(&["snapshot-location", "set", "ours", "--credential", "other=cloud"]).await;
    assert_eq!(made("ours").await, made("theirs").await);
    assert_eq!(made("ours").await.0["credential"], json!({ "name": "other", "key": "cloud" }));
    for listed in [ours(&home, &["snapshot-location", "get"]).await, home.velero(&["snapshot-location", "get"]).await] {
        assert!(listed.contains("ours") && listed.contains("theirs") && listed.contains("aws"), "{listed}");
    }
    the_plugin_for_aws_starts_without_a_cloud(&bed, &home).await;
}

async fn the_plugin_for_aws_starts_without_a_cloud(bed: &Bed, home: &Home<'_>) {
    let Ok(program) = cache::program("velero-plugin-for-aws") else { return };
    home.delete("VolumeSnapshotLocation", "theirs").await;
    home.create_secret("other", "cloud", &crate::bed::s3_keys("secret")).await;
    let volumes: Api<PersistentVolume> = Api::all(bed.client.clone());
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "disk",
        "labels": { "topology.kubernetes.io/zone": "eu-1a" } },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "csi": { "driver": "ebs.csi.aws.com", "volumeHandle": "vol-0123" } } });
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    let directory = plugin_directory(bed, &[("velero-plugin-for-aws", &program)]);
    // No server listens there: the connection is refused.
    let nowhere =
        [("AWS_ENDPOINT_URL", "http://127.0.0.1:9"), ("AWS_MAX_ATTEMPTS", "1"), ("AWS_EC2_METADATA_DISABLED", "true")];
    let _server = server(home, &directory, &nowhere);
    home.backup("aws", json!({ "includedNamespaces": [home.namespace], "includeClusterResources": true })).await;
    let backup = home.ended("Backup", "aws").await;
    let errors = home.messages("aws", "errors");
    assert_eq!(phase(&backup), "PartiallyFailed", "{backup:#}\n{errors}\n{}", home.log());
    let expected = "snapshot of volume disk: plugin velero.io/aws: VolumeSnapshotter.GetVolumeInfo: ";
    assert!(errors.contains(expected), "{errors}");
    // A location that its own credentials cannot be read for is named, and nothing is asked of it.
    home.patch("VolumeSnapshotLocation", "ours", json!({ "spec": { "credential": { "name": "none" } } })).await;
    home.backup("keys", json!({ "includedNamespaces": [home.namespace], "includeClusterResources": true })).await;
    home.ended("Backup", "keys").await;
    let errors = home.messages("keys", "errors");
    assert!(errors.contains("VolumeSnapshotLocation ours cannot be used: failed to read secret none"), "{errors}");
}
