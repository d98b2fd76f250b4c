//! Checks followed transfers for obstacles: reports them, and fails transfers that cannot continue or are overdue.

use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tracing::debug;

use super::TransferLost;
use super::entries::{Entries, active_transfers, lock, mark_lost, update_entry};
use crate::fs_backup::agent_heartbeat::AgentHeartbeats;
use crate::fs_backup::obstacle::{BlockableTransfer, Obstacle, ObstacleDuration};
use crate::fs_backup::services::TransferServices;
use crate::fs_backup::transfer_writes::{FailResult, fail_transfer, write_obstacle};

/// How often obstacles are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A shorter obstacle is not written: every pod takes a moment to start.
const REPORT_AFTER: Duration = Duration::from_secs(5);

pub(super) async fn poll_obstacles<T: BlockableTransfer>(services: &TransferServices, entries: &Entries<T>) {
    let mut agents = AgentHeartbeats::new(
        services.leader.client.clone(),
        &services.leader.namespace,
        services.agent_heartbeat_timeout,
    );
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        check_obstacles(services, entries, &mut agents).await;
    }
}

/// Checks transfers for obstacles, and fails those that cannot continue.
async fn check_obstacles<T: BlockableTransfer>(
    services: &TransferServices,
    entries: &Entries<T>,
    agents: &mut AgentHeartbeats,
) {
    for (name, latest) in active_transfers(entries) {
        let Some(object) = latest else {
            read_transfer(services, entries, &name).await;
            continue;
        };
        let action = match object.obstacle(&services.leader.client, agents).await {
            Ok(obstacle) => decide(services, entries, &name, obstacle.as_ref()),
            Err(error) => {
                debug!("checking transfer {name}: {error}");
                overdue(entries, &name)
            }
        };
        match action {
            Some(ObstacleAction::Fail(message))
                if fail_transfer(services, object.as_ref(), &message).await == FailResult::TooLate =>
            {
                read_transfer(services, entries, &name).await;
            }
            Some(ObstacleAction::Report(obstacle)) => write_obstacle(services, object.as_ref(), &obstacle).await,
            Some(ObstacleAction::Fail(_)) | None => {}
        }
    }
}

/// Reads a transfer that the watch has not reported.
async fn read_transfer<T: BlockableTransfer>(services: &TransferServices, entries: &Entries<T>, name: &str) {
    match services.leader.api::<T>().get_opt(name).await {
        Ok(Some(object)) => update_entry(object, entries),
        Ok(None) => mark_lost(name, TransferLost::Deleted, entries),
        Err(error) => {
            debug!("reading transfer {name}: {error}");
            if overdue(entries, name).is_some() {
                mark_lost(name, TransferLost::Unread, entries);
            }
        }
    }
}

/// The action on an obstacle.
pub(super) enum ObstacleAction {
    /// Write it into the status of the transfer.
    Report(Obstacle),
    /// Fail the transfer with this message.
    Fail(String),
}

/// Shows an obstacle and decides by its duration.
fn decide<T: BlockableTransfer>(
    services: &TransferServices,
    entries: &Entries<T>,
    name: &str,
    obstacle: Option<&Obstacle>,
) -> Option<ObstacleAction> {
    let mut entries = lock(entries);
    let followed = entries.get_mut(name)?.active()?;
    let lasted = followed.set_obstacle(obstacle);
    let report = match obstacle.map(|obstacle| (obstacle, obstacle.lasts)) {
        Some((obstacle, ObstacleDuration::Over)) => return Some(ObstacleAction::Fail(obstacle.to_string())),
        Some((obstacle, ObstacleDuration::AWhile)) if lasted >= services.resource_timeout => {
            return Some(ObstacleAction::Fail(obstacle.to_string()));
        }
        Some((obstacle, ObstacleDuration::AWhile)) if lasted >= REPORT_AFTER => {
            Some(ObstacleAction::Report(obstacle.clone()))
        }
        _ => None,
    };
    if followed.is_overdue() { Some(timed_out()) } else { report }
}

/// Decides by the timeout alone.
pub(super) fn overdue<T: BlockableTransfer>(entries: &Entries<T>, name: &str) -> Option<ObstacleAction> {
    let mut entries = lock(entries);
    let followed = entries.get_mut(name)?.active()?;
    followed.is_overdue().then(timed_out)
}

fn timed_out() -> ObstacleAction {
    ObstacleAction::Fail("TimedOut: the timeout of the transfer has passed".to_owned())
}
