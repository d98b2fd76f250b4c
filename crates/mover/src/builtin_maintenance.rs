//! Maintenance of a repository by the engine: a prune.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_repository::{PruneOptions, PrunePlan, Repository, RepositoryError};

use crate::job::Maintenance;
use crate::mover::Session;
use crate::outcome::{MaintenanceOutcome, RepositoryUsage};

/// Plans a prune, and runs it unless it is a dry run.
pub(crate) fn maintain(
    repository: &Arc<Repository>,
    maintenance: Maintenance,
    session: &Session,
) -> Result<MaintenanceOutcome, RepositoryError> {
    let options =
        PruneOptions { lock_timeout: Duration::from_secs(maintenance.lock_timeout), ..PruneOptions::default() };
    let prepared = repository.prepare_prune(options, &session.task, &session.cancel)?;
    let plan = prepared.plan().clone();
    let usage = Some(usage(&plan));
    if maintenance.dry_run || plan.is_empty() {
        return Ok(MaintenanceOutcome {
            dry_run: maintenance.dry_run,
            usage,
            freed: Some(plan.freed_bytes()),
            moved: Some(plan.moved_bytes),
            ..MaintenanceOutcome::default()
        });
    }
    let done = prepared.run(&session.task, &session.cancel)?;
    Ok(MaintenanceOutcome {
        usage,
        freed: Some(done.freed_bytes()),
        moved: Some(done.moved_bytes),
        denied: done.denied_packs,
        denied_bytes: done.denied_bytes,
        ..MaintenanceOutcome::default()
    })
}

fn usage(plan: &PrunePlan) -> RepositoryUsage {
    RepositoryUsage {
        snapshots: plan.snapshots,
        stored: plan.stored_bytes,
        used: plan.used_bytes,
        freeable: plan.freed_bytes(),
        tolerated: plan.remaining_unused_bytes(),
        recent: plan.recent_bytes,
    }
}
