//! Ends the transfers of a backup or restore that has been given up.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_progress::Task;
use serde_json::json;
use tokio::time::Instant;
use tracing::warn;

use crate::Error;
use crate::context::Context;
use crate::transfer::kind::Transfer;
use crate::transfer::write::Record;

/// Agents stop within five seconds; whoever has not by then is not there.
const LIMIT: Duration = Duration::from_secs(8);

/// Cancels every transfer with a label that has not ended, and waits a little for their agents. Best effort.
pub async fn abandon<T: Transfer>(context: &Context, selector: &str, task: &Task) {
    if let Err(error) = try_abandon::<T>(context, selector, task).await {
        warn!("cancelling transfers: {error}");
    }
}

async fn try_abandon<T: Transfer>(context: &Context, selector: &str, task: &Task) -> Result<(), Error> {
    let open = open::<T>(context, selector).await?;
    if open.is_empty() {
        return Ok(());
    }
    let waiting = task.wait(format!("waiting for {} volume transfers to stop", open.len()));
    for object in &open {
        context.leader.fence.check()?;
        let patch = Patch::Merge(json!({ "spec": { "cancel": true } }));
        let answer = context.leader.api::<T>().patch(&object.name_any(), &PatchParams::default(), &patch).await;
        if let Err(error) = answer {
            warn!("cancelling {}: {error}", object.name_any());
        }
    }
    let started = Instant::now();
    let mut left = open;
    while !left.is_empty() && started.elapsed() < LIMIT {
        tokio::time::sleep(Duration::from_millis(200)).await;
        left = self::open::<T>(context, selector).await?;
    }
    drop(waiting);
    for object in &left {
        let record = Record::new(context.leader.client.clone(), &context.leader.namespace, object);
        let now = format!("{:.0}", Timestamp::now());
        let cancelled = |_: &T| {
            json!({ "status": { "phase": TransferPhase::Canceled.as_str(), "completionTimestamp": now,
                "message": "cancelled; no agent took part" } })
        };
        record.change(task, cancelled).await?;
    }
    Ok(())
}

async fn open<T: Transfer>(context: &Context, selector: &str) -> Result<Vec<T>, Error> {
    let found = context.leader.api::<T>().list(&ListParams::default().labels(selector)).await;
    let found = found.map_err(|e| Error::api(format!("list {}", T::plural(&())), e))?;
    Ok(found.items.into_iter().filter(|object| !object.phase().is_ended()).collect())
}
