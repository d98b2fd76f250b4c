//! Requests of `plimsoll repo` and their answers.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use plimsoll_api::velero::v1::BackupRepository;
use plimsoll_local::fixtures::eventually;
use plimsoll_mover::{MoverKind, Outcome, SnapshotInfo};
use plimsoll_volumes::repositories::{
    ANSWER, Answer, REQUEST, RepositoryKey, Request, RequestKind, require, run_backup_repository_controller,
};
use serde_json::json;

use crate::repositories::create_backup_with_snapshot;
use crate::test_bed::TestBed;

pub const REPOSITORY: &str = "shop-default-restic";
/// The ID of a snapshot that a backup refers to.
const USED: &str = "0123456789abcdef";

/// Sends a request to the controller, and returns its answer.
pub async fn ask(bed: &TestBed, id: &str, asked: RequestKind) -> Answer {
    let request = serde_json::to_string(&Request { id: id.to_owned(), asked }).unwrap();
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { REQUEST: request } } }));
    bed.api::<BackupRepository>().patch(REPOSITORY, &PatchParams::default(), &patch).await.unwrap();
    eventually(&format!("request {id} is answered"), async || {
        let repository = bed.api::<BackupRepository>().get(REPOSITORY).await.unwrap();
        let answer: Answer = serde_json::from_str(repository.annotations().get(ANSWER)?).unwrap();
        (answer.id == id).then_some(answer)
    })
    .await
}

fn snapshot(id: &str, hours: i64) -> SnapshotInfo {
    let time = Timestamp::now() - SignedDuration::from_hours(hours);
    SnapshotInfo { id: id.to_owned(), time, ended: None, tags: [].into(), source: "/data".into(), bytes: Some(10) }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_old_snapshots_that_no_backup_refers_to_are_deleted() {
    let bed = TestBed::new().await;
    let key = RepositoryKey::new("shop", "default", MoverKind::BuiltIn);
    require(&bed.services.repositories, &key, &bed.tree.root()).await.unwrap();
    create_backup_with_snapshot(&bed, USED).await;
    let snapshots = vec![snapshot(USED, 9), snapshot("orphan", 9), snapshot("young", 0)];
    bed.answer("snapshots", Ok(&Outcome::Snapshots(snapshots)));
    bed.answer("forget", Ok(&Outcome::Forgotten(1)));
    let controller = tokio::spawn(run_backup_repository_controller(bed.services.repositories.clone()));

    let described = ask(&bed, "1", RequestKind::Describe).await;
    assert_eq!((described.error, described.snapshots, described.orphan_count), (None, 3, 2));
    let refused = ask(&bed, "2", RequestKind::Orphans { older_than: 60, delete: true }).await;
    assert_eq!(refused.error.as_deref(), Some("snapshots younger than one hour are never deleted"));
    assert!(!bed.work().iter().any(serde_json::Value::is_object), "nothing was forgotten");

    let deleted = ask(&bed, "3", RequestKind::Orphans { older_than: 7200, delete: true }).await;
    let orphans: Vec<_> = deleted.orphans.iter().map(|orphan| orphan.id.as_str()).collect();
    assert_eq!((deleted.error, deleted.deleted, orphans), (None, true, vec!["orphan"]));
    let forgotten: Vec<_> = bed.work().into_iter().filter(serde_json::Value::is_object).collect();
    assert_eq!(forgotten, [json!({ "forget": { "snapshots": ["orphan"] } })]);
    controller.abort();
}
