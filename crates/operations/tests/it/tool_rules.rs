//! What other tools make of the status of a subject: kstatus (Flux), `kubectl wait` and the health checks of Argo CD.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use plimsoll_api::velero::v1::{Backup, BackupPhase, RestorePhase};
use plimsoll_local::fixtures::eventually;
use plimsoll_operations::projection;
use plimsoll_progress::{Operation, VirtualClock};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::scripted_backup::Server;

/// The rules of kstatus for a custom resource without a condition `Ready`.
fn kstatus(object: &Value) -> &'static str {
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return "Terminating";
    }
    let observed = &object["status"]["observedGeneration"];
    if !observed.is_null() && *observed != object["metadata"]["generation"] {
        return "InProgress";
    }
    for condition in object["status"]["conditions"].as_array().into_iter().flatten() {
        match (condition["type"].as_str(), condition["status"].as_str()) {
            (Some("Reconciling"), Some("True")) => return "InProgress",
            (Some("Stalled"), Some("True")) => return "Failed",
            _ => {}
        }
    }
    "Current"
}

/// Whether `kubectl wait --for=condition=…` returns.
fn kubectl_waits_no_longer(object: &Value, condition: &str) -> bool {
    let (observed, generation) = (&object["status"]["observedGeneration"], &object["metadata"]["generation"]);
    if observed.as_i64().is_some_and(|observed| Some(observed) < generation.as_i64()) {
        return false;
    }
    let mut all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.any(|known| known["type"] == condition && known["status"] == "True")
}

/// The health of a Backup or Restore in Argo CD, by its phase.
fn argo_health(phase: &str) -> &'static str {
    match phase {
        "Completed" => "Healthy",
        "FailedValidation"
        | "Failed"
        | "PartiallyFailed"
        | "WaitingForPluginOperationsPartiallyFailed"
        | "FinalizingPartiallyFailed" => "Degraded",
        _ => "Progressing",
    }
}

async fn object(cluster: &Cluster, name: &str) -> Value {
    serde_json::to_value(cluster.api::<Backup>().get(name).await.unwrap()).unwrap()
}

#[test]
fn every_phase_means_the_same_to_both_tools() {
    let now = jiff::Timestamp::UNIX_EPOCH;
    let backups = BackupPhase::KNOWN.iter().map(|phase| (*phase, BackupPhase::from(*phase).is_ended()));
    let restores = RestorePhase::KNOWN.iter().map(|phase| (*phase, RestorePhase::from(*phase).is_ended()));
    for (phase, ended) in backups.chain(restores) {
        let conditions = if ended {
            projection::conditions_before_start("Succeeded", "", now)
        } else {
            projection::conditions_while_waiting("queued behind backup a", now)
        };
        assert_eq!(conditions[0].type_, "Reconciling", "the first condition that is true decides");
        let status = json!({ "phase": phase, "conditions": conditions });
        let object = json!({ "metadata": { "generation": 1 }, "status": status });
        assert_eq!(kstatus(&object), if ended { "Current" } else { "InProgress" }, "{phase}");
        assert_eq!(kubectl_waits_no_longer(&object, "Complete"), ended, "{phase}");
        let health = argo_health(phase);
        if ended {
            assert_ne!(health, "Progressing", "{phase}");
        } else {
            assert_ne!(health, "Healthy", "{phase}");
        }
    }
}

#[test]
fn a_stalled_operation_is_in_progress_and_not_failed() {
    let clock = VirtualClock::new();
    let tree = Operation::new("backup-b", clock.clock());
    clock.advance(Duration::from_secs(30));
    let snapshot = tree.snapshot();
    assert!(snapshot.stall.is_some());
    let mut conditions = projection::conditions(&snapshot, &[], jiff::Timestamp::UNIX_EPOCH);
    let object = |conditions: &[Condition]| json!({ "metadata": { "generation": 1 }, "status": { "phase": "InProgress", "conditions": conditions } });
    assert_eq!(kstatus(&object(&conditions)), "InProgress");
    for condition in ["Reconciling", "ProgressStalled"] {
        assert!(kubectl_waits_no_longer(&object(&conditions), condition), "{condition}");
    }
    assert!(!kubectl_waits_no_longer(&object(&conditions), "Stalled"), "that type means failed");
    conditions.reverse();
    assert_eq!(kstatus(&object(&conditions)), "InProgress", "in any order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_in_progress_until_it_has_ended() {
    let cluster = Cluster::start().await;
    let leadership = cluster.lead("a").await;
    let mut server = Server::start(cluster.runtime(&leadership), 1);
    cluster.create_backup("x").await;
    let work = server.next_start().await;
    cluster.create_backup("queued").await;
    cluster.wait_for_phase("queued", "Queued").await;
    for name in ["x", "queued"] {
        let running = eventually("the conditions are written", async || {
            let object = object(&cluster, name).await;
            object["status"]["conditions"].is_array().then_some(object)
        })
        .await;
        assert_eq!(kstatus(&running), "InProgress", "{running:#}");
        assert!(kubectl_waits_no_longer(&running, "Reconciling") && !kubectl_waits_no_longer(&running, "Complete"));
    }
    drop(work);
    cluster.wait_for_phase("x", "Completed").await;
    let ended = object(&cluster, "x").await;
    assert_eq!(kstatus(&ended), "Current", "{ended:#}");
    assert_eq!(ended["status"]["observedGeneration"], ended["metadata"]["generation"]);
    assert!(kubectl_waits_no_longer(&ended, "Complete"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_after_the_end_is_observed_and_starts_nothing() {
    let cluster = Cluster::start().await;
    let leadership = cluster.lead("a").await;
    let server = Server::start(cluster.runtime(&leadership), 1);
    cluster.create_backup("invalid").await;
    cluster.wait_for_phase("invalid", "FailedValidation").await;
    assert_eq!(kstatus(&object(&cluster, "invalid").await), "Current");
    let change = Patch::Merge(json!({ "spec": { "ttl": "1h" } }));
    cluster.api::<Backup>().patch("invalid", &PatchParams::default(), &change).await.unwrap();
    let observed = eventually("the change is observed", async || {
        let object = object(&cluster, "invalid").await;
        (kstatus(&object) == "Current").then_some(object)
    })
    .await;
    assert_eq!(
        (&observed["status"]["phase"], &observed["spec"]["ttl"]),
        (&json!("FailedValidation"), &json!("1h0m0s"))
    );
    assert!(server.is_idle());
}
