//! File-system backup: from the pods to the PodVolumeBackups and their results.

use std::time::Duration;

use kube::ResourceExt;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{BackupRepository, PodVolumeBackup, UploaderSettings};
use plimsoll_engine::ports::{VolumeBackupResults, VolumeBackupper};
use plimsoll_mover::MoverError;
use plimsoll_select::resource_policies::ResourcePolicies;
use plimsoll_volumes::fs_backup::{FsBackup, FsBackupParameters, FsBackupPolicy};
use serde_json::{Value, json};

use crate::test_bed::{NODE, SHOP, TestBed};

/// The backup `nightly` in the location `default`.
async fn start(bed: &TestBed, policy: FsBackupPolicy) -> FsBackup {
    let parameters = FsBackupParameters {
        services: bed.services.clone(),
        job: bed.job(),
        location: "default".to_owned(),
        policy,
        limit: Duration::from_mins(1),
        settings: UploaderSettings::default(),
    };
    FsBackup::new(parameters).await.unwrap()
}

/// All volumes, unless a pod or a policy says no.
fn all_volumes() -> FsBackupPolicy {
    FsBackupPolicy { by_default: true, ..FsBackupPolicy::default() }
}

async fn back_up(bed: &TestBed, backup: &FsBackup, pod: &Value) {
    backup.back_up(pod, false, &bed.tree.root()).await.unwrap();
}

/// The pod `db` with a claim, a scratch directory and a Secret.
async fn create_db(bed: &TestBed, annotations: Value) -> Value {
    bed.create_claim("data").await;
    let volumes = json!([{ "name": "files", "persistentVolumeClaim": { "claimName": "data" } },
        { "name": "scratch", "emptyDir": {} }, { "name": "keys", "secret": { "secretName": "keys" } }]);
    bed.create_pod("db", volumes, annotations, "Running").await
}

fn method_and_result(results: &VolumeBackupResults) -> Vec<(&str, &str, &str)> {
    let of = |info| -> (&str, &str, &str) {
        let info: &plimsoll_archive::volume_info::BackupVolumeInfo = info;
        (&info.volume.pvc_name, &info.backup_method, &info.result)
    };
    results.infos.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_volumes_that_a_pod_names_are_backed_up_by_the_agent_of_its_node() {
    let bed = TestBed::new().await;
    let pod = create_db(&bed, json!({ labels::BACKUP_VOLUMES: "files, missing" })).await;
    let backup = start(&bed, FsBackupPolicy::default()).await;
    assert!(backup.has_volumes(&pod));
    back_up(&bed, &backup, &pod).await;

    let transfers = bed.complete_backups(1).await;
    let transfer = serde_json::to_value(&transfers[0]).unwrap();
    let spec = &transfer["spec"];
    assert_eq!((&spec["node"], &spec["volume"]), (&json!(NODE), &json!("files")), "{transfer:#}");
    assert_eq!(spec["pod"]["uid"], pod["metadata"]["uid"]);
    assert_eq!((&spec["uploaderType"], &spec["backupStorageLocation"]), (&json!("restic"), &json!("default")));
    assert!(spec["repoIdentifier"].as_str().unwrap().ends_with("bucket-default/restic/shop"), "{transfer:#}");
    assert_eq!((&spec["tags"]["backup"], &spec["tags"]["volume"]), (&json!("nightly"), &json!("files")));
    assert_eq!(spec["tags"]["pvc-uid"], transfer["metadata"]["labels"][labels::PVC_UID]);
    assert_eq!(transfer["metadata"]["annotations"][labels::PVC_NAME], "data");
    assert_eq!(transfer["metadata"]["ownerReferences"][0]["name"], "nightly");

    assert!(backup.includes_claim("shop/data") && !backup.includes_claim("shop/other"));
    let results = backup.finish().await.unwrap();
    assert_eq!(method_and_result(&results), [("data", "PodVolumeBackup", "succeeded")]);
    assert_eq!(results.pod_volume_backups[0]["status"]["snapshotID"], "5eed");
    let warning = "pod shop/db has no volume missing, which its annotation names";
    assert_eq!(results.warnings, [(SHOP.to_owned(), warning.to_owned())]);
    assert_eq!(results.errors, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_two_pods_share_is_backed_up_through_the_running_one_and_once() {
    let bed = TestBed::new().await;
    bed.create_claim("data").await;
    let volumes = json!([{ "name": "files", "persistentVolumeClaim": { "claimName": "data" } }]);
    let backup = start(&bed, all_volumes()).await;
    for (name, phase) in [("job", "Succeeded"), ("web-0", "Running"), ("web-1", "Running")] {
        let pod = bed.create_pod(name, volumes.clone(), json!({}), phase).await;
        back_up(&bed, &backup, &pod).await;
    }
    let transfers = bed.complete_backups(1).await;
    assert_eq!(transfers[0].spec.pod.as_ref().unwrap().name.as_deref(), Some("web-0"));
    let results = backup.finish().await.unwrap();
    assert_eq!(results.warnings, [], "the claim of the ended pod is backed up");
    assert_eq!(bed.list::<PodVolumeBackup>().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_volumes_of_a_pod_that_does_not_run_are_a_warning() {
    let bed = TestBed::new().await;
    let volumes = json!([{ "name": "scratch", "emptyDir": {} }]);
    let pod = bed.create_pod("job", volumes, json!({}), "Pending").await;
    let backup = start(&bed, all_volumes()).await;
    back_up(&bed, &backup, &pod).await;
    let results = backup.finish().await.unwrap();
    let warning = "pod shop/job is Pending, not Running: its volumes are not backed up";
    assert_eq!(results.warnings, [(SHOP.to_owned(), warning.to_owned())]);
    assert!(bed.list::<PodVolumeBackup>().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_policy_decides_which_volumes_are_backed_up() {
    let bed = TestBed::new().await;
    let pod = create_db(&bed, json!({})).await;
    let rules = format!(
        "version: v1\nvolumePolicies:\n- conditions: {{csi: {{driver: {}}}}}\n  action: {{type: skip}}\n",
        crate::test_bed::DRIVER
    );
    let policies = Some(ResourcePolicies::parse(&rules).unwrap());
    let backup = start(&bed, FsBackupPolicy { policies, ..all_volumes() }).await;
    back_up(&bed, &backup, &pod).await;
    let transfers = bed.complete_backups(1).await;
    assert_eq!(transfers[0].spec.volume.as_deref(), Some("scratch"));
    let results = backup.finish().await.unwrap();
    let skipped: Vec<_> = results.infos.iter().filter(|info| info.skipped).collect();
    assert_eq!(skipped.len(), 1);
    let reason = (skipped[0].volume.pv_name.as_str(), skipped[0].skipped_reason.as_str());
    assert_eq!(reason, ("pv-data", "skipped due to policy"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_follows_the_transfers_of_its_predecessor() {
    let bed = TestBed::new().await;
    let pod = create_db(&bed, json!({ labels::BACKUP_VOLUMES: "files" })).await;
    let predecessor = start(&bed, FsBackupPolicy::default()).await;
    back_up(&bed, &predecessor, &pod).await;
    drop(predecessor);
    let created = bed.complete_backups(1).await;
    let backup = start(&bed, FsBackupPolicy::default()).await;
    back_up(&bed, &backup, &pod).await;
    let results = backup.finish().await.unwrap();
    assert_eq!(method_and_result(&results), [("data", "PodVolumeBackup", "succeeded")]);
    let transfers = bed.list::<PodVolumeBackup>().await;
    assert_eq!(transfers.iter().map(ResourceExt::uid).collect::<Vec<_>>(), [created[0].uid()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_failed_or_is_gone_is_an_error_of_its_volume() {
    let bed = TestBed::new().await;
    let pod = create_db(&bed, json!({})).await;
    let backup = start(&bed, all_volumes()).await;
    back_up(&bed, &backup, &pod).await;
    let (files, scratch) = {
        let transfers = bed.list::<PodVolumeBackup>().await;
        let name =
            |volume: &str| transfers.iter().find(|one| one.spec.volume.as_deref() == Some(volume)).unwrap().name_any();
        (name("files"), name("scratch"))
    };
    let failed = json!({ "phase": "Failed", "message": "MoverCrashed: killed by signal 9" });
    bed.set_status::<PodVolumeBackup>(&files, failed).await;
    bed.api::<PodVolumeBackup>().delete(&scratch, &kube::api::DeleteParams::default()).await.unwrap();
    let mut errors = backup.finish().await.unwrap().errors;
    errors.sort();
    let expected = [
        "volume shop/db/files: MoverCrashed: killed by signal 9",
        "volume shop/db/scratch: its PodVolumeBackup was deleted",
    ];
    assert_eq!(errors, expected.map(|line| (SHOP.to_owned(), line.to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_whose_repository_does_not_open_are_errors_and_get_no_transfers() {
    let bed = TestBed::new().await;
    let pod = create_db(&bed, json!({})).await;
    bed.answer("ensure", Err(&MoverError::WrongPassword { repository: "restic/shop".into() }));
    let backup = start(&bed, all_volumes()).await;
    back_up(&bed, &backup, &pod).await;
    let results = backup.finish().await.unwrap();
    assert_eq!(results.errors.len(), 2, "{:?}", results.errors);
    for (volume, (_, error)) in ["files", "scratch"].into_iter().zip(&results.errors) {
        let expected = format!("volume shop/db/{volume}: WrongRepositoryPassword: ");
        assert!(error.starts_with(&expected), "{error}");
    }
    assert!(bed.list::<PodVolumeBackup>().await.is_empty());
    let repository = &bed.list::<BackupRepository>().await[0];
    let status = serde_json::to_value(&repository.status).unwrap();
    assert_eq!((repository.name_any().as_str(), &status["phase"]), ("shop-default-restic", &json!("NotReady")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_pod_stays_frozen_until_its_volumes_are_backed_up() {
    let bed = TestBed::new().await;
    let pod = create_db(&bed, json!({})).await;
    let backup = start(&bed, all_volumes()).await;
    let task = bed.tree.root();
    tokio::join!(
        async {
            backup.back_up(&pod, true, &task).await.unwrap();
            let transfers = bed.list::<PodVolumeBackup>().await;
            let ended = transfers.iter().filter(|transfer| transfer.phase().is_ended()).count();
            assert_eq!(ended, 2, "the post-hooks would run before the volumes are backed up");
        },
        bed.complete_backups(2),
    );
}
