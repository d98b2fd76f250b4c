//! Writes the progress of a transfer to its custom resource. It is a task of its own: a slow API server costs freshness only.

mod cluster_transfers;
mod progress_floor;

use std::time::Duration;

use plimsoll_operations::is_same_except_times;
use plimsoll_progress::Observer;
use plimsoll_volumes::transfer::{Transfer, TransferRecord};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

pub(crate) use self::cluster_transfers::ClusterTransfers;
pub(crate) use self::progress_floor::{ProgressFloor, resumed_tree, status};

/// How often the tree of a transfer is read: a new stall is written at once.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The least time between two writes to an API server that is slower than the interval.
const MIN_INTERVAL: Duration = Duration::from_millis(500);

/// Writes until it is stopped.
pub(crate) struct StatusWriter {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<ProgressFloor>,
}

impl Drop for StatusWriter {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The settings of a writer.
pub(crate) struct StatusWriterSettings<T> {
    pub record: TransferRecord<T>,
    pub tree: Observer,
    pub floor: ProgressFloor,
    /// The total, where that is known before the mover has started.
    pub expected: Option<u64>,
    pub running: ClusterTransfers,
    /// Cancelled when the custom resource is deleted.
    pub gone: CancellationToken,
}

impl StatusWriter {
    /// Starts writing.
    pub fn start<T: Transfer>(settings: StatusWriterSettings<T>) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(write_until_stopped(settings, stop.clone()));
        Self { stop, task }
    }

    /// Stops after a running write: nothing older can follow the last one. Returns what was shown.
    pub async fn stop(mut self) -> ProgressFloor {
        self.stop.cancel();
        (&mut self.task).await.unwrap_or_default()
    }
}

async fn write_until_stopped<T: Transfer>(
    mut settings: StatusWriterSettings<T>,
    stop: CancellationToken,
) -> ProgressFloor {
    let mut last = Value::Null;
    // The duration of a write is not added to the interval, as long as it is shorter.
    let mut due = Instant::now();
    loop {
        let mut read = || status(&settings.tree.snapshot(), &mut settings.floor, settings.expected);
        let seen = read();
        let is_urgent = |seen: &Value| stalled(seen) != stalled(&last);
        if (Instant::now() >= due && !is_same_except_times(&seen, &last)) || is_urgent(&seen) {
            tokio::select! {
                () = settings.running.write_budget.acquire_when(|| is_urgent(&read())) => {}
                () = stop.cancelled() => return settings.floor,
            }
            // The tree may have changed while this waited for its permit.
            let status = read();
            due = Instant::now() + settings.running.interval();
            match settings.record.write_progress(&status).await {
                Ok(()) => last = status,
                Err(error) if error.code() == Some(404) => {
                    settings.gone.cancel();
                    return settings.floor;
                }
                Err(error) => debug!("{error}"),
            }
        }
        let now = Instant::now();
        let next = due.clamp(now + MIN_INTERVAL, now + POLL_INTERVAL);
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = stop.cancelled() => return settings.floor,
        }
    }
}

/// The stalled task and the reason, if there is one.
fn stalled(status: &Value) -> Option<[&Value; 2]> {
    let stalled = status.pointer("/plimsoll/stalled").filter(|stalled| stalled.is_object())?;
    Some([&stalled["task"], &stalled["reason"]])
}

#[cfg(test)]
mod tests;
