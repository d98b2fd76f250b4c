//! CSI snapshots in a backup: taken once for each claim, or moved into a repository.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::ListParams;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::UploaderSettings;
use plimsoll_api::velero::v2alpha1::DataUpload;
use plimsoll_engine::PluginLogSink;
use plimsoll_engine::backup::actions::{BackupActionOutput, BackupItemAction, BackupItemActions};
use plimsoll_engine::outcome::Recorder;
use plimsoll_mover::MoverKind;
use plimsoll_volumes::csi::{CsiBackup, CsiBackupParameters, DataMovement};
use plimsoll_volumes::fs_backup::FsBackupPolicy;
use serde_json::{Value, json};

use crate::snapshot_driver::{SIZE, SnapshotDriver, create_class, snapshots};
use crate::test_bed::{NAMESPACE, SHOP, TestBed, completed};

/// The CSI part of the backup `nightly`, and its action for claims.
struct Started {
    csi: Arc<CsiBackup>,
    action: Arc<dyn BackupItemAction>,
    plugin_log: Arc<PluginLogSink>,
}

impl Started {
    async fn execute(&self, claim: &Value) -> BackupActionOutput {
        self.action.execute(claim, &json!({})).await.unwrap()
    }
}

async fn start(bed: &TestBed, change: impl FnOnce(&mut CsiBackupParameters)) -> Started {
    let (item_filter, plugin_log) = (Arc::new(bed.item_filter().await), Arc::<PluginLogSink>::default());
    let mut parameters = CsiBackupParameters {
        services: bed.services.clone(),
        job: bed.job(),
        backup: json!({}),
        wanted: None,
        plugins: false,
        item_filter: Arc::clone(&item_filter),
        policy: FsBackupPolicy::default(),
        limit: Duration::from_mins(1),
        movement: None,
        plugin_log: Arc::clone(&plugin_log),
    };
    change(&mut parameters);
    let mut actions = BackupItemActions::default();
    let csi = CsiBackup::register(parameters, &mut actions, item_filter.catalog()).unwrap().unwrap();
    csi.all_pods_read();
    let action = Arc::clone(actions.for_resource("persistentvolumeclaims").next().unwrap());
    Started { csi, action, plugin_log }
}

/// Movement into the location `default`.
fn movement() -> DataMovement {
    DataMovement {
        location: "default".to_owned(),
        kind: MoverKind::BuiltIn,
        mover: None,
        settings: UploaderSettings::default(),
    }
}

/// Records the errors of a backup in a directory.
fn record_errors(started: &Started, scratch: &Path) -> Arc<Recorder> {
    let recorder = Arc::new(Recorder::create(scratch).unwrap());
    started.plugin_log.attach(&recorder);
    recorder
}

async fn snapshot_names(bed: &TestBed) -> Vec<String> {
    let all = snapshots(&bed.client).list(&ListParams::default()).await.unwrap().items;
    all.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_snapshot_of_a_claim_is_taken_once_and_goes_into_the_backup_with_its_objects() {
    let bed = TestBed::new().await;
    create_class(&bed.client).await;
    let _driver = SnapshotDriver::start(&bed.client);
    let claim = bed.create_claim("data").await;
    let started = start(&bed, |_| {}).await;
    let output = started.execute(&claim).await;
    assert_eq!(started.execute(&claim).await, output, "the claim is an item, and belongs to a pod");

    let names = snapshot_names(&bed).await;
    let [name] = &names[..] else { panic!("one snapshot: {names:?}") };
    assert!(name.starts_with("velero-data-"), "{name}");
    let item = output.item.unwrap();
    assert_eq!(item["metadata"]["annotations"]["velero.io/volume-snapshot-name"].as_str(), Some(name.as_str()));
    let additional: Vec<_> = output.additional.iter().map(ToString::to_string).collect();
    assert_eq!(
        additional,
        [
            format!("volumesnapshots.snapshot.storage.k8s.io shop/{name}"),
            format!("volumesnapshotcontents.snapshot.storage.k8s.io content-{name}"),
            "volumesnapshotclasses.snapshot.storage.k8s.io example".to_owned(),
        ]
    );
    let operation = output.operation.unwrap();
    let client = Arc::clone(&started.action).operation_client().unwrap();
    let progress = client.progress(&operation.id, &json!({})).await.unwrap();
    assert!(progress.completed && progress.error.is_empty(), "{progress:?}");
    assert_eq!((progress.done, progress.total), (0, 0), "a snapshot moves no bytes");
    let size = plimsoll_progress::view::size_text(SIZE);
    assert_eq!(progress.description, format!("ready to use, {size}"));
    let info = &started.csi.results()[0];
    assert_eq!((info.backup_method.as_str(), info.result.as_str()), ("CSISnapshot", "succeeded"));
    let snapshot = info.snapshot.csi_snapshot_info.as_ref().unwrap();
    assert_eq!((snapshot.snapshot_handle.clone(), snapshot.ready_to_use), (format!("handle-{name}"), Some(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_the_driver_refuses_is_an_error_of_the_backup_and_is_removed() {
    let bed = TestBed::new().await;
    create_class(&bed.client).await;
    let _driver = SnapshotDriver::start_failing(&bed.client, "rpc error: code = InvalidArgument desc = no snapshots");
    let claim = bed.create_claim("data").await;
    let started = start(&bed, |_| {}).await;
    let scratch = tempfile::tempdir().unwrap();
    let recorder = record_errors(&started, scratch.path());
    assert_eq!(started.execute(&claim).await, BackupActionOutput::default());
    assert_eq!(recorder.counts().0, 1, "an error of the backup");
    assert_eq!(snapshot_names(&bed).await, Vec::<String>::new());
    assert_eq!(started.csi.results()[0].result, "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_has_no_snapshot_where_its_files_are_backed_up_or_no_class_is_for_its_driver() {
    let bed = TestBed::new().await;
    let claim = bed.create_claim("data").await;
    assert_eq!(start(&bed, |_| {}).await.execute(&claim).await, BackupActionOutput::default(), "there is no class");
    create_class(&bed.client).await;
    let volumes = json!([{ "name": "files", "persistentVolumeClaim": { "claimName": "data" } }]);
    bed.create_pod("db", volumes, json!({}), "Running").await;
    let by_files = start(&bed, |parameters| parameters.policy.by_default = true).await;
    assert_eq!(by_files.execute(&claim).await, BackupActionOutput::default());
    assert_eq!(snapshot_names(&bed).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn data_movement_creates_an_upload_whose_result_is_the_result_of_the_volume() {
    let bed = TestBed::new().await;
    create_class(&bed.client).await;
    let _driver = SnapshotDriver::start(&bed.client);
    let claim = bed.create_claim("data").await;
    let started = start(&bed, |parameters| parameters.movement = Some(movement())).await;
    let output = started.execute(&claim).await;
    let uploads = bed.list::<DataUpload>().await;
    let [upload] = &uploads[..] else { panic!("one upload: {uploads:?}") };
    let name = upload.name_any();
    let spec = serde_json::to_value(&upload.spec).unwrap();
    assert_eq!((&spec["sourcePVC"], &spec["sourceNamespace"]), (&json!("data"), &json!(SHOP)), "{spec:#}");
    assert_eq!(spec["csiSnapshot"]["volumeSnapshot"], snapshot_names(&bed).await[0]);
    assert_eq!(upload.annotations()[labels::MOVER], "built-in");
    let item = output.item.unwrap();
    assert_eq!(item["metadata"]["annotations"]["velero.io/data-upload-name"], format!("{NAMESPACE}/{name}"));

    let operation = output.operation.unwrap();
    let client = Arc::clone(&started.action).operation_client().unwrap();
    let progress = async || client.progress(&operation.id, &json!({})).await.unwrap();
    bed.set_status::<DataUpload>(&name, json!({ "progress": { "totalBytes": 10, "bytesDone": 3 } })).await;
    let running = progress().await;
    assert_eq!((running.completed, running.done, running.total), (false, 3, 10));
    bed.set_status::<DataUpload>(&name, completed("5eed")).await;
    assert!(progress().await.completed);
    let info = &started.csi.final_results().await.unwrap()[0];
    let moved = info.snapshot.snapshot_data_movement_info.as_ref().unwrap();
    assert_eq!((moved.snapshot_handle.as_str(), moved.size, info.result.as_str()), ("5eed", 10, "succeeded"));
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_a_claim_without_a_storage_class_is_not_moved_and_no_snapshot_is_left_behind() {
    let bed = TestBed::new().await;
    create_class(&bed.client).await;
    let _driver = SnapshotDriver::start(&bed.client);
    let mut claim = bed.create_claim("data").await;
    claim["spec"].as_object_mut().unwrap().remove("storageClassName");
    let started = start(&bed, |parameters| parameters.movement = Some(movement())).await;
    let scratch = tempfile::tempdir().unwrap();
    let recorder = record_errors(&started, scratch.path());
    assert_eq!(started.execute(&claim).await, BackupActionOutput::default());
    assert_eq!(recorder.counts().0, 1, "an error of the backup");
    assert!(snapshot_names(&bed).await.is_empty() && bed.list::<DataUpload>().await.is_empty());
}
