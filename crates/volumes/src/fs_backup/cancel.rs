//! Ends the transfers of a backup or restore that has been given up.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_engine::Error;
use plimsoll_operations::LeaderClient;
use plimsoll_progress::Task;
use serde_json::json;
use tokio::time::Instant;
use tracing::warn;

use crate::transfer::Transfer;
use crate::transfer::TransferRecord;

/// Agents stop within five seconds; one that has not is not running.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(8);

/// Cancels every transfer with a label that has not ended, and waits a little for their agents. Best effort.
pub async fn cancel_transfers<T: Transfer>(leader: &LeaderClient, selector: &str, task: &Task) {
    if let Err(error) = try_cancel_transfers::<T>(leader, selector, task).await {
        warn!("cancelling transfers: {error}");
    }
}

async fn try_cancel_transfers<T: Transfer>(leader: &LeaderClient, selector: &str, task: &Task) -> Result<(), Error> {
    let open = open::<T>(leader, selector).await?;
    if open.is_empty() {
        return Ok(());
    }
    let waiting = task.wait(format!("waiting for {} volume transfers to stop", open.len()));
    for object in &open {
        leader.fence.check()?;
        let patch = Patch::Merge(json!({ "spec": { "cancel": true } }));
        let answer = leader.api::<T>().patch(&object.name_any(), &PatchParams::default(), &patch).await;
        if let Err(error) = answer {
            warn!("cancelling {}: {error}", object.name_any());
        }
    }
    let started = Instant::now();
    let mut left = open;
    while !left.is_empty() && started.elapsed() < CANCEL_TIMEOUT {
        tokio::time::sleep(Duration::from_millis(200)).await;
        left = self::open::<T>(leader, selector).await?;
    }
    drop(waiting);
    for object in &left {
        let record = TransferRecord::new(leader.client.clone(), &leader.namespace, object);
        let now = format!("{:.0}", Timestamp::now());
        let cancelled = |_: &T| {
            json!({ "status": { "phase": TransferPhase::Canceled.as_str(), "completionTimestamp": now,
                "message": "cancelled; no agent took part" } })
        };
        record.change(task, cancelled).await?;
    }
    Ok(())
}

async fn open<T: Transfer>(leader: &LeaderClient, selector: &str) -> Result<Vec<T>, Error> {
    let found = leader.api::<T>().list(&ListParams::default().labels(selector)).await;
    let found = found.map_err(|e| Error::api(format!("list {}", T::plural(&())), e))?;
    Ok(found.items.into_iter().filter(|object| !object.phase().is_ended()).collect())
}
