//! The repositories that backups of volumes need: their custom resources, their password and their state.

use std::path::Path;

use k8s_openapi::api::core::v1::{Event, Secret};
use kube::ResourceExt;
use plimsoll_api::velero::v1::{BackupRepository, PodVolumeBackup};
use plimsoll_engine::Error;
use plimsoll_mover::{MoverError, MoverKind, Outcome};
use plimsoll_volumes::repositories::{PASSWORD_KEY, PASSWORD_SECRET, RepositoryKey, forget, require};
use serde_json::json;

use crate::test_bed::{TestBed, completed, create};

fn key(namespace: &str, location: &str) -> RepositoryKey {
    RepositoryKey::new(namespace, location, MoverKind::BuiltIn)
}

async fn require_shop(bed: &TestBed) -> Result<BackupRepository, Error> {
    require(&bed.services.repositories, &key("shop", "default"), &bed.tree.root()).await
}

/// The password of the cluster's repositories.
async fn password(bed: &TestBed) -> Option<Vec<u8>> {
    let secret = bed.api::<Secret>().get_opt(PASSWORD_SECRET).await.unwrap()?;
    Some(secret.data.unwrap()[PASSWORD_KEY].0.clone())
}

/// The directories of a repository that something has written.
fn write_repository(bucket: &Path, path: &str) {
    std::fs::create_dir_all(bucket.join(path)).unwrap();
    std::fs::write(bucket.join(path).join("config"), "x").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_repository_of_a_cluster_gets_a_password_and_is_opened_once() {
    let bed = TestBed::new().await;
    let repository = require_shop(&bed).await.unwrap();
    assert_eq!(repository.name_any(), "shop-default-restic");
    let identifier = repository.spec.restic_identifier.clone().unwrap_or_default();
    assert!(identifier.ends_with("bucket-default/restic/shop"), "{identifier}");
    assert_eq!(serde_json::to_value(&repository.status).unwrap()["phase"], "Ready");
    assert_eq!(password(&bed).await.map(|password| password.len()), Some(40));

    require_shop(&bed).await.unwrap();
    assert_eq!(bed.work(), [json!("ensure")], "it is known to be ready");
    let bank = require(&bed.services.repositories, &key("bank", "default"), &bed.tree.root()).await.unwrap();
    assert_eq!(bank.name_any(), "bank-default-restic");
    let passwords: Vec<_> = bed.jobs().iter().map(|job| job["repository"]["password"].clone()).collect();
    assert!(passwords.len() == 2 && passwords[0] == passwords[1], "one password for the cluster");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_does_not_open_is_not_ready_and_an_event_says_why() {
    let bed = TestBed::new().await;
    bed.answer("ensure", Err(&MoverError::WrongPassword { repository: "restic/shop".into() }));
    let error = require_shop(&bed).await.unwrap_err();
    assert_eq!((error.reason(), error.is_retryable()), ("WrongRepositoryPassword", false), "{error}");
    let status = serde_json::to_value(&bed.list::<BackupRepository>().await[0].status).unwrap();
    assert_eq!(status["phase"], "NotReady");
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("WrongRepositoryPassword: "), "{message}");
    let reasons: Vec<_> = bed.list::<Event>().await.into_iter().filter_map(|event| event.reason).collect();
    assert_eq!(reasons, ["WrongRepositoryPassword"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_in_a_location_that_does_not_exist_is_not_created() {
    let bed = TestBed::new().await;
    let error = require(&bed.services.repositories, &key("shop", "absent"), &bed.tree.root()).await.unwrap_err();
    assert!(error.to_string().contains("BackupStorageLocation \"absent\" not found"), "{error}");
    assert!(bed.list::<BackupRepository>().await.is_empty() && bed.jobs().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_in_a_read_only_location_is_read_and_not_initialized() {
    let bed = TestBed::new().await;
    bed.create_location("archive", json!({ "accessMode": "ReadOnly" })).await;
    bed.answer("snapshots", Ok(&Outcome::Snapshots(Vec::new())));
    require(&bed.services.repositories, &key("shop", "archive"), &bed.tree.root()).await.unwrap();
    assert_eq!(bed.work(), [json!("snapshots")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_password_is_made_up_where_a_repository_has_another_one() {
    let bed = TestBed::new().await;
    write_repository(&bed.bucket(), "restic/shop");
    bed.answer("snapshots", Err(&MoverError::WrongPassword { repository: "restic/shop".into() }));
    let error = require_shop(&bed).await.unwrap_err();
    assert_eq!(error.reason(), "RepositoryPasswordMissing");
    assert!(error.to_string().contains("copy it from where the repository was made"), "{error}");
    assert_eq!((password(&bed).await, bed.work()), (None, vec![json!("snapshots")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_password_is_adopted_only_where_this_cluster_has_used_the_repository() {
    let bed = TestBed::new().await;
    write_repository(&bed.bucket(), "restic/shop");
    bed.answer("snapshots", Ok(&Outcome::Snapshots(Vec::new())));
    let error = require_shop(&bed).await.unwrap_err();
    assert!(error.to_string().contains("--adopt-default-repository-password"), "{error}");
    assert_eq!(password(&bed).await, None);
    bed.set_status::<BackupRepository>("shop-default-restic", json!({ "lastMaintenanceTime": "2026-01-01T00:00:00Z" }))
        .await;
    require_shop(&bed).await.unwrap();
    assert_eq!(password(&bed).await.as_deref(), Some(plimsoll_mover::DEFAULT_PASSWORD));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_repositories_whose_names_collide_stay_two() {
    let bed = TestBed::new().await;
    bed.create_location("eu-default", json!({})).await;
    let names = [("shop-eu", "default"), ("shop", "eu-default"), ("shop", "eu-default")];
    let mut found = Vec::new();
    for (namespace, location) in names {
        let key = key(namespace, location);
        let repository = require(&bed.services.repositories, &key, &bed.tree.root()).await.unwrap();
        assert_eq!(RepositoryKey::of(&repository), key);
        found.push(repository.name_any());
    }
    assert_eq!(found[0], "shop-eu-default-restic");
    assert!(found[1].starts_with("shop-eu-default-restic-") && found[1] == found[2], "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_backup_forgets_its_own_snapshots_and_a_repository_that_is_gone_is_no_error() {
    let bed = TestBed::new().await;
    require_shop(&bed).await.unwrap();
    bed.answer("forget", Ok(&Outcome::Forgotten(2)));
    let backup = |namespace: &str, snapshot: &str| -> PodVolumeBackup {
        let backup = json!({ "metadata": { "name": snapshot }, "spec": { "uploaderType": "restic",
            "pod": { "namespace": namespace, "name": "db" } }, "status": completed(snapshot) });
        serde_json::from_value(backup).unwrap()
    };
    let transfers = [backup("shop", "1"), backup("shop", "2")];
    let forget_all =
        async || forget(&bed.services.repositories, "default", &transfers, &bed.tree.root()).await.unwrap();
    assert_eq!(forget_all().await, Vec::<String>::new());
    assert_eq!(bed.work().pop(), Some(json!({ "forget": { "snapshots": ["1", "2"] } })));
    bed.answer("forget", Err(&MoverError::RepositoryNotFound { repository: "restic/shop".into() }));
    assert_eq!(forget_all().await, Vec::<String>::new());
    bed.answer("forget", Err(&MoverError::WrongPassword { repository: "restic/shop".into() }));
    let errors = forget_all().await;
    assert!(errors.len() == 1 && errors[0].starts_with("error deleting pod volume snapshots 1, 2: "), "{errors:?}");
}

/// A PodVolumeBackup of the cluster with this snapshot.
pub async fn create_backup_with_snapshot(bed: &TestBed, snapshot: &str) {
    let backup = json!({ "metadata": { "name": snapshot }, "spec": { "node": "n", "pod": { "name": "db" },
        "volume": "files", "backupStorageLocation": "default", "repoIdentifier": "", "uploaderType": "restic" } });
    create(&bed.api::<PodVolumeBackup>(), backup).await;
    bed.set_status::<PodVolumeBackup>(snapshot, completed(snapshot)).await;
}
