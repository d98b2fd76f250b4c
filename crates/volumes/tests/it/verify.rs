//! Verification of the volume data of a backup.

use plimsoll_archive::{codec, layout};
use plimsoll_mover::{Damage, MoverError, MoverKind, Outcome, SnapshotInfo, VerifyOutcome};
use plimsoll_operations::CancellationToken;
use plimsoll_store::Store;
use plimsoll_volumes::repositories::{BackupSnapshots, RepositoryKey, VerifiedVolumes, snapshots_of, verify_snapshots};
use serde_json::json;

use crate::test_bed::{TestBed, completed};

const FIRST: &str = "0123456789abcdef";
const SECOND: &str = "fedcba9876543210";

fn key(namespace: &str, kind: MoverKind) -> RepositoryKey {
    RepositoryKey::new(namespace, "default", kind)
}

async fn verify(bed: &TestBed, snapshots: BackupSnapshots) -> VerifiedVolumes {
    let (root, cancel) = (bed.tree.root(), CancellationToken::new());
    verify_snapshots(&bed.services.repositories, "nightly", snapshots, 10, &root, &cancel).await.unwrap()
}

/// A bed whose cluster has the password of the repositories.
async fn bed() -> TestBed {
    let bed = TestBed::new().await;
    let key = key("shop", MoverKind::BuiltIn);
    plimsoll_volumes::repositories::require(&bed.services.repositories, &key, &bed.tree.root()).await.unwrap();
    bed
}

#[tokio::test(flavor = "multi_thread")]
async fn the_snapshots_of_a_backup_are_those_of_its_file_system_backups_and_moved_snapshots() {
    let bed = TestBed::new().await;
    let store = Store::directory(bed.bucket(), "").unwrap();
    let transfer = |id: &str, uploader: &str| {
        json!({ "metadata": { "name": id }, "spec": { "pod": { "namespace": "shop", "name": "db" },
            "uploaderType": uploader }, "status": completed(id) })
    };
    let transfers = codec::gzip_json(&json!([transfer(FIRST, "restic"), transfer("", "restic")])).unwrap();
    store.put(&layout::backup_pod_volume_backups("nightly"), transfers).await.unwrap();
    let moved = json!([
        { "pvcName": "data", "pvcNamespace": "bank", "backupMethod": "CSISnapshot", "snapshotDataMoved": true,
            "snapshotDataMovementInfo": { "uploaderType": "kopia", "snapshotHandle": SECOND } },
        { "pvcName": "kept", "pvcNamespace": "bank", "backupMethod": "CSISnapshot" },
    ]);
    store.put(&layout::backup_volume_info("nightly"), codec::gzip_json(&moved).unwrap()).await.unwrap();
    let found: Vec<_> = snapshots_of(&store, "default", "nightly").await.unwrap().into_iter().collect();
    assert_eq!(
        found,
        [
            (key("bank", MoverKind::Kopia), vec![SECOND.to_owned()]),
            (key("shop", MoverKind::BuiltIn), vec![FIRST.to_owned()]),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_named_with_the_other_backups_that_need_it() {
    let bed = bed().await;
    let damage = Damage { text: "pack x is missing".into(), snapshots: vec![FIRST.into(), SECOND.into()] };
    let outcome = VerifyOutcome {
        snapshots: 1,
        bytes_read: Some(7),
        damage: vec![damage],
        damage_count: 1,
        ..VerifyOutcome::default()
    };
    bed.answer("verify", Ok(&Outcome::Verified(outcome)));
    let snapshot = |id: &str, backup: &str| SnapshotInfo {
        id: id.into(),
        time: jiff::Timestamp::now(),
        ended: None,
        tags: [("backup".to_owned(), backup.to_owned())].into(),
        source: "/data".into(),
        bytes: None,
    };
    bed.answer("snapshots", Ok(&Outcome::Snapshots(vec![snapshot(FIRST, "nightly"), snapshot(SECOND, "weekly")])));
    let verified = verify(&bed, [(key("shop", MoverKind::BuiltIn), vec![FIRST.to_owned()])].into()).await;
    assert_eq!((verified.snapshots, verified.bytes_read, verified.problem_count), (1, 7, 1));
    assert_eq!(verified.problems[0].text, "repository shop-default-restic: pack x is missing");
    assert_eq!(verified.problems[0].also_affects, ["weekly"]);
    let asked = json!({ "verify": { "snapshots": [FIRST], "percent": 10 } });
    assert!(bed.work().contains(&asked), "{:?}", bed.work());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_is_gone_is_a_problem_of_the_backup() {
    let bed = bed().await;
    bed.answer("verify", Err(&MoverError::RepositoryNotFound { repository: "restic/shop".into() }));
    let verified = verify(&bed, [(key("shop", MoverKind::BuiltIn), vec![FIRST.to_owned()])].into()).await;
    assert_eq!(verified.problem_count, 1);
    assert_eq!(verified.problems[0].text, "repository shop-default-restic not found, with 1 snapshots of this backup");
}
