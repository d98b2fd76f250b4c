//! BackupRepository: the repositories of volume data, their state and their content.
//!
//! ```text
//!  backup ── require ────────────┐                                    ┌─▶ status: Ready | NotReady, and why
//!  watch: CR, Secret, location ──┴▶ check: password, place ──▶ mover ─┤
//!  deleted backup ── forget (its own snapshots) ──▶ mover             └─▶ Events
//!  maintenance, when it is due ── prune ──▶ mover ──▶ Operation, status.recentMaintenance
//!  plimsoll repo ── request annotation ──▶ orphans, locks ──▶ answer annotation
//! ```
//!
//! Only the leader runs this: creating a repository takes no lock that another process would see, so the Lease alone excludes a
//! second creator. Nothing here removes a snapshot that the caller did not name.

mod access;
mod answer;
mod check;
mod check_state;
mod create;
mod forget;
mod job;
mod locks;
mod maintenance;
mod password;
mod references;
mod repository_cache;
mod request;
mod require;
mod status;
mod verify;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use plimsoll_api::velero::v1::{BackupRepository, BackupStorageLocation, BackupStorageLocationSpec};
use plimsoll_engine::Error;
use plimsoll_mover::MoverCommand;
use plimsoll_operations::{LeaderClient, OperationRuntime, WatchBackoff, catch_panic};
use tracing::warn;

use crate::storage_location::StorageLocations;

pub use self::access::{RepositoryKey, open, repository_name, uploader_kind};
pub use self::forget::forget;
pub use self::maintenance::{MAINTAIN, maintenance_text};
pub use self::password::{PASSWORD_KEY, PASSWORD_SECRET};
pub use self::repository_cache::RepositoryCache;
pub use self::request::{ANSWER, Answer, LockReport, REQUEST, Request, RequestKind, SnapshotReport};
pub use self::require::require;
pub use self::verify::{BackupSnapshots, Problem, VerifiedVolumes, snapshots_of, verify_snapshots};

use self::check_state::{RepositoryState, location_identity};
use self::maintenance::MaintenanceQueue;

/// Repositories that are checked in parallel; each check is a process.
const MAX_CONCURRENT_CHECKS: u16 = 2;

/// The repositories of this leader. One check of a repository at a time.
pub struct Repositories {
    leader: LeaderClient,
    /// Records maintenances as Operations.
    runtime: Arc<OperationRuntime>,
    storage: Arc<StorageLocations>,
    /// Whether Velero's default password is accepted for repositories that this cluster has never used.
    adopt_default_password: bool,
    maintenance: MaintenanceQueue,
    known: Mutex<HashMap<String, Arc<tokio::sync::Mutex<RepositoryState>>>>,
    /// The command that runs movers; `None` for this program.
    mover: Option<MoverCommand>,
}

impl Repositories {
    /// Starts without any state.
    pub fn new(runtime: Arc<OperationRuntime>, storage: Arc<StorageLocations>, adopt_default_password: bool) -> Self {
        let (maintenance, known) = Default::default();
        let leader = runtime.leader.clone();
        Self { leader, runtime, storage, adopt_default_password, maintenance, known, mover: None }
    }

    /// Runs movers by another command than this program.
    #[must_use]
    pub fn with_mover(self, command: MoverCommand) -> Self {
        Self { mover: Some(command), ..self }
    }

    /// The state of a repository. The holder of its lock works on the repository alone.
    fn of(&self, name: &str) -> Arc<tokio::sync::Mutex<RepositoryState>> {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(name.to_owned()).or_default())
    }
}

/// The settings of locations as last observed. Changes of their status, one a minute, are ignored.
#[derive(Default)]
struct LocationChanges(Mutex<HashMap<String, BackupStorageLocationSpec>>);

impl LocationChanges {
    /// Records a location. Returns whether it has changed.
    fn record(&self, location: BackupStorageLocation) -> bool {
        let (name, now) = (location.name_any(), location_identity(location));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(name, now.clone()) != Some(now)
    }
}

/// Runs the controller and the maintenance until the future is dropped.
pub async fn run_backup_repository_controller(repositories: Arc<Repositories>) {
    tokio::join!(run_controller(Arc::clone(&repositories)), maintenance::run(&repositories));
}

async fn run_controller(repositories: Arc<Repositories>) {
    let controller = Controller::new(repositories.leader.api::<BackupRepository>(), watcher::Config::default());
    let cached = controller.store();
    // A changed password triggers a check within seconds.
    let password = watcher::Config::default().fields(&format!("metadata.name={PASSWORD_SECRET}"));
    // So does a changed location.
    let (stored, moves) = (cached.clone(), LocationChanges::default());
    let in_location = move |location: BackupStorageLocation| {
        let name = location.name_any();
        let moved = moves.record(location);
        let all = if moved { stored.state() } else { Vec::new() };
        let there = all.into_iter().filter(|repository| RepositoryKey::of(repository).location == name);
        there.map(|repository| ObjectRef::from_obj(&*repository)).collect::<Vec<_>>()
    };
    controller
        .watches(repositories.leader.api::<BackupStorageLocation>(), watcher::Config::default(), in_location)
        .watches(repositories.leader.api::<Secret>(), password, move |_| {
            let all = cached.state();
            all.into_iter().map(|repository| ObjectRef::from_obj(&*repository)).collect::<Vec<_>>()
        })
        .with_config(Config::default().concurrency(MAX_CONCURRENT_CHECKS))
        .trigger_backoff(WatchBackoff::default())
        .run(
            reconcile,
            |repository, error, _| {
                warn!("BackupRepository {}: {error}", repository.name_any());
                Action::requeue(Duration::from_secs(5))
            },
            repositories,
        )
        .for_each(|_| async {})
        .await;
}

async fn reconcile(repository: Arc<BackupRepository>, repositories: Arc<Repositories>) -> Result<Action, Error> {
    let work = async {
        let known = repositories.of(&repository.name_any());
        let mut known = known.lock().await;
        let next = check::check_if_due(&repository, &mut known, &repositories).await?;
        answer::answer_request(&repository, &mut known, &repositories).await?;
        Ok(Action::requeue(next))
    };
    Box::pin(catch_panic(&format!("BackupRepository {}", repository.name_any()), work)).await
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_changed_location_triggers_a_check() {
        let location = |bucket: &str, status: Value| -> BackupStorageLocation {
            serde_json::from_value(json!({ "metadata": { "name": "default" },
                "spec": { "provider": "aws", "objectStorage": { "bucket": bucket } }, "status": status }))
            .unwrap()
        };
        let moves = LocationChanges::default();
        assert!(moves.record(location("b", json!({}))));
        assert!(!moves.record(location("b", json!({ "phase": "Available" }))));
        assert!(moves.record(location("c", json!({ "phase": "Available" }))));
    }
}
