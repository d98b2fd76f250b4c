//! BackupRepository: whether the volumes of a namespace have a place to go to, and what lies there.
//!
//! ```text
//!  backup ── require ────────────┐                                    ┌─▶ status: Ready | NotReady, and why
//!  watch: CR, Secret, location ──┴▶ check: password, place ──▶ mover ─┤
//!  deleted backup ── forget (its own snapshots) ──▶ mover             └─▶ Events
//!  plimsoll repo ── request annotation ──▶ orphans, locks ──▶ answer annotation
//! ```
//!
//! Only the leader comes here: making a repository takes no lock that another process would see, so the Lease is what keeps
//! two of one cluster apart. Nothing here removes a snapshot that was not named.

mod access;
mod ensure;
mod forget;
mod known;
mod locks;
mod password;
mod request;
mod required;

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
use tracing::warn;

pub use self::access::{Whose, name_of, open, uploader_kind};
pub use self::ensure::require;
pub use self::forget::forget;
pub use self::password::{PASSWORD_KEY, PASSWORD_SECRET};
pub use self::request::{ANSWER, Answer, Asked, LockReport, REQUEST, Request, SnapshotReport};
pub(crate) use self::required::Required;

use self::ensure::{Known, bearings};
use crate::context::Context;

/// How many repositories are looked at side by side: each look is a process.
const AT_ONCE: u16 = 2;

/// What this leader knows about each repository. One look at a time.
#[derive(Default)]
pub struct Repositories(Mutex<HashMap<String, Arc<tokio::sync::Mutex<Known>>>>);

impl Repositories {
    /// What is known about the repository of this name; whoever holds it works on it alone.
    fn of(&self, name: &str) -> Arc<tokio::sync::Mutex<Known>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(name.to_owned()).or_default())
    }
}

/// Where locations were when they were last heard of. Their status changes every minute, and that is nothing to look for.
#[derive(Default)]
struct Moves(Mutex<HashMap<String, BackupStorageLocationSpec>>);

impl Moves {
    /// Whether a location is in another place than before.
    fn notice(&self, location: BackupStorageLocation) -> bool {
        let (name, now) = (location.name_any(), bearings(location));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(name, now.clone()) != Some(now)
    }
}

/// Runs the controller until the future is dropped.
pub async fn control(context: Arc<Context>) {
    let controller = Controller::new(context.leader.api::<BackupRepository>(), watcher::Config::default());
    let repositories = controller.store();
    // A password that was changed shows within seconds, not at the next look.
    let password = watcher::Config::default().fields(&format!("metadata.name={PASSWORD_SECRET}"));
    // So does a location that now means another place.
    let (stored, moves) = (repositories.clone(), Moves::default());
    let in_location = move |location: BackupStorageLocation| {
        let name = location.name_any();
        let moved = moves.notice(location);
        let all = if moved { stored.state() } else { Vec::new() };
        let there = all.into_iter().filter(|repository| Whose::of(repository).location == name);
        there.map(|repository| ObjectRef::from_obj(&*repository)).collect::<Vec<_>>()
    };
    controller
        .watches(context.leader.api::<BackupStorageLocation>(), watcher::Config::default(), in_location)
        .watches(context.leader.api::<Secret>(), password, move |_| {
            let all = repositories.state();
            all.into_iter().map(|repository| ObjectRef::from_obj(&*repository)).collect::<Vec<_>>()
        })
        .with_config(Config::default().concurrency(AT_ONCE))
        .run(
            reconcile,
            |repository, error, _| {
                warn!("BackupRepository {}: {error}", repository.name_any());
                Action::requeue(Duration::from_secs(5))
            },
            context,
        )
        .for_each(|_| async {})
        .await;
}

async fn reconcile(repository: Arc<BackupRepository>, context: Arc<Context>) -> Result<Action, Error> {
    let known = context.repositories.of(&repository.name_any());
    let mut known = known.lock().await;
    let next = ensure::look(&repository, &mut known, &context).await?;
    request::answer(&repository, &mut known, &context).await?;
    Ok(Action::requeue(next))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_location_is_heard_of_again_only_once_it_is_in_another_place() {
        let location = |bucket: &str, status: Value| -> BackupStorageLocation {
            serde_json::from_value(json!({ "metadata": { "name": "default" },
                "spec": { "provider": "aws", "objectStorage": { "bucket": bucket } }, "status": status }))
            .unwrap()
        };
        let moves = Moves::default();
        assert!(moves.notice(location("b", json!({}))));
        assert!(!moves.notice(location("b", json!({ "phase": "Available" }))));
        assert!(moves.notice(location("c", json!({ "phase": "Available" }))));
    }
}
