//! Maintenance of repositories: on a schedule and on request, as an Operation.

use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams};
use plimsoll_api::plimsoll::v1alpha1::{Operation, OperationState};
use plimsoll_api::velero::v1::{BackupRepository, RepositoryMaintenance};
use plimsoll_local::fixtures::eventually;
use plimsoll_mover::{MaintenanceOutcome, MoverError, MoverKind, Outcome, RepositoryUsage};
use plimsoll_volumes::repositories::{RepositoryKey, RequestKind, require, run_backup_repository_controller};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::repository_requests::{REPOSITORY, ask};
use crate::test_bed::{TestBed, create};

/// A cluster with a repository of this kind that was maintained for the last time long ago, or just now.
async fn bed_with(kind: MoverKind, is_due: bool) -> TestBed {
    let bed = TestBed::new().await;
    let key = RepositoryKey::new("shop", "default", kind);
    require(&bed.services.repositories, &key, &bed.tree.root()).await.unwrap();
    if is_due {
        let last = json!({ "lastMaintenanceTime": "2026-01-01T00:00:00Z" });
        bed.set_status::<BackupRepository>(&format!("shop-default-{}", kind.uploader_type()), last).await;
    }
    bed
}

fn control(bed: &TestBed) -> JoinHandle<()> {
    tokio::spawn(run_backup_repository_controller(bed.services.repositories.clone()))
}

fn freed() -> Outcome {
    let usage = Some(RepositoryUsage { stored: 3 << 20, used: 2 << 20, ..RepositoryUsage::default() });
    Outcome::Maintained(MaintenanceOutcome { usage, freed: Some(1 << 20), ..MaintenanceOutcome::default() })
}

/// The recorded maintenances, once there are this many.
async fn runs(bed: &TestBed, name: &str, count: usize) -> Vec<RepositoryMaintenance> {
    eventually(&format!("{count} maintenances of {name}"), async || {
        let repository = bed.api::<BackupRepository>().get(name).await.unwrap();
        let runs = repository.status.unwrap_or_default().recent_maintenance;
        (runs.len() >= count).then_some(runs)
    })
    .await
}

fn texts(runs: &[RepositoryMaintenance]) -> Vec<(String, String)> {
    let text = |run: &RepositoryMaintenance| {
        (run.result.clone().unwrap_or_default().to_string(), run.message.clone().unwrap_or_default())
    };
    runs.iter().map(text).collect()
}

async fn operation(bed: &TestBed) -> Operation {
    bed.api::<Operation>().get(&format!("maintain-{REPOSITORY}")).await.unwrap()
}

fn state(operation: &Operation) -> Option<OperationState> {
    operation.status.as_ref()?.state.clone()
}

async fn events(bed: &TestBed) -> Vec<String> {
    let of_maintenance = |event: Event| event.reason.filter(|reason| reason.starts_with("Maintenance"));
    let mut reasons: Vec<_> = bed.list::<Event>().await.into_iter().filter_map(of_maintenance).collect();
    // They are listed in the order of their random names.
    reasons.sort();
    reasons
}

/// The maintenances that movers were asked for.
fn maintenances(bed: &TestBed) -> Vec<Value> {
    bed.work().iter().filter_map(|work| work.get("maintain").cloned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_is_due_is_maintained_and_the_result_is_recorded() {
    let bed = bed_with(MoverKind::BuiltIn, true).await;
    bed.answer("maintain", Ok(&freed()));
    let controller = control(&bed);
    let runs = runs(&bed, REPOSITORY, 1).await;
    let message = "freed 1.0 MiB of 3.0 MiB; snapshots use 2.0 MiB";
    assert_eq!(texts(&runs), [("Succeeded".to_owned(), message.to_owned())]);
    let status = bed.api::<BackupRepository>().get(REPOSITORY).await.unwrap().status.unwrap();
    assert_eq!(status.last_maintenance_time, runs[0].complete_timestamp);
    assert_eq!(events(&bed).await, ["MaintenanceSucceeded"]);
    let operation = operation(&bed).await;
    assert_eq!(
        (state(&operation), operation.spec.verb.as_deref()),
        (Some(OperationState::Succeeded), Some("maintain"))
    );
    assert_eq!(maintenances(&bed), [json!({ "dryRun": false, "lockTimeout": 3600 })], "once, and not a dry run");
    controller.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kopia_repository_is_maintained_by_kopia() {
    let bed = bed_with(MoverKind::Kopia, true).await;
    let outcome = MaintenanceOutcome { mode: Some("quick".into()), ..MaintenanceOutcome::default() };
    bed.answer("maintain", Ok(&Outcome::Maintained(outcome)));
    let controller = control(&bed);
    let runs = runs(&bed, "shop-default-kopia", 1).await;
    assert_eq!(texts(&runs), [("Succeeded".to_owned(), "kopia maintenance (quick) completed".to_owned())]);
    let jobs = bed.jobs();
    let job = jobs.iter().find(|job| job["work"].get("maintain").is_some()).unwrap();
    assert_eq!(job["kind"], "kopia");
    controller.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_on_request_runs_before_it_is_due_and_a_failure_is_recorded() {
    let bed = bed_with(MoverKind::BuiltIn, false).await;
    bed.answer("maintain", Err(&MoverError::Locked { repository: "r".into(), holder: "by a backup".into() }));
    let controller = control(&bed);
    assert_eq!(ask(&bed, "1", RequestKind::Maintain).await.error, None);
    let runs = runs(&bed, REPOSITORY, 1).await;
    let message = "RepositoryLocked: repository r is locked: by a backup";
    assert_eq!(texts(&runs), [("Failed".to_owned(), message.to_owned())]);
    let status = bed.api::<BackupRepository>().get(REPOSITORY).await.unwrap().status.unwrap();
    assert_eq!(status.last_maintenance_time, None, "a failure moves no schedule");
    assert_eq!(events(&bed).await, ["MaintenanceFailed"]);
    assert_eq!(state(&operation(&bed).await), Some(OperationState::Failed));
    controller.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_that_an_earlier_leader_did_not_end_is_done_by_the_next_one() {
    let bed = bed_with(MoverKind::BuiltIn, false).await;
    bed.answer("maintain", Ok(&freed()));
    let uid = bed.api::<BackupRepository>().get(REPOSITORY).await.unwrap().metadata.uid;
    let left = json!({ "metadata": { "name": format!("maintain-{REPOSITORY}") },
        "spec": { "verb": "maintain", "subject": { "apiVersion": "velero.io/v1", "kind": "BackupRepository", "name": REPOSITORY, "uid": uid } } });
    create(&bed.api::<Operation>(), left).await;
    let controller = control(&bed);
    assert_eq!(texts(&runs(&bed, REPOSITORY, 1).await)[0].0, "Succeeded");
    assert_eq!(state(&operation(&bed).await), Some(OperationState::Succeeded));
    controller.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_maintenance_is_cancelled_by_its_operation_and_the_next_one_is_not() {
    let bed = bed_with(MoverKind::BuiltIn, false).await;
    let pipe = bed.bucket().parent().unwrap().join("maintain");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success(), "a mover that reads it hangs");
    let controller = control(&bed);
    ask(&bed, "1", RequestKind::Maintain).await;
    eventually("the maintenance runs", async || (!maintenances(&bed).is_empty()).then_some(())).await;
    assert_eq!(state(&operation(&bed).await), Some(OperationState::Running));
    let cancel = Patch::Merge(json!({ "spec": { "cancel": true } }));
    let name = format!("maintain-{REPOSITORY}");
    bed.api::<Operation>().patch(&name, &PatchParams::default(), &cancel).await.unwrap();
    let cancelled = ("Failed".to_owned(), "cancelled by a user".to_owned());
    assert_eq!(texts(&runs(&bed, REPOSITORY, 1).await), [cancelled]);
    assert_eq!(state(&operation(&bed).await), Some(OperationState::Cancelled));

    std::fs::remove_file(&pipe).unwrap();
    bed.answer("maintain", Ok(&freed()));
    ask(&bed, "2", RequestKind::Maintain).await;
    assert_eq!(texts(&runs(&bed, REPOSITORY, 2).await)[1].0, "Succeeded");
    assert_eq!(state(&operation(&bed).await), Some(OperationState::Succeeded));
    assert_eq!(events(&bed).await, ["MaintenanceCancelled", "MaintenanceSucceeded"]);
    controller.abort();
}
