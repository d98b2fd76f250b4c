//! Shows a transfer's progress in its custom resource: a task of its own, so that a slow API server costs freshness only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_api::velero::v1::TransferProgress;
use plimsoll_mover::transfer_progress;
use plimsoll_progress::{Observer, Snapshot};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::kind::Transfer;
use super::write::Record;
use crate::project;
use crate::report::nulls_for_absent;

/// A reader should never see anything older than two seconds; the write itself takes its time too.
const EVERY: Duration = Duration::from_millis(1500);
/// How often a transfer is looked at: one that has begun to stand still is written at once, whoever else writes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// An API server that is slower than the interval is not asked again at once.
const SHORTEST: Duration = Duration::from_millis(500);
/// So many writes a second, all nodes together. With 160 transfers nothing is older than two seconds, with 1,000 the API
/// server still gets fewer than a hundred writes a second in all.
const WRITES_A_SECOND: u32 = 92;

/// How many transfers of each kind run in the cluster, as far as this agent has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Running(Arc<Mutex<HashMap<String, usize>>>);

impl Running {
    /// So many of this kind.
    pub fn set(&self, kind: &str, count: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(kind.to_owned(), count);
    }

    /// How often each of them may be written.
    fn interval(&self) -> Duration {
        let all: usize = self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum();
        let all = u32::try_from(all).unwrap_or(u32::MAX);
        EVERY.max(Duration::from_secs(1).saturating_mul(all) / WRITES_A_SECOND)
    }
}

/// Writes until it is stopped.
pub(super) struct Reporter {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What to show.
pub(super) struct Reporting<T> {
    pub record: Record<T>,
    pub tree: Observer,
    /// What was shown before: nothing shown goes back.
    pub floor: u64,
    pub running: Running,
    /// Told when the custom resource is deleted.
    pub gone: CancellationToken,
}

impl Reporter {
    /// Starts writing.
    pub fn start<T: Transfer>(reporting: Reporting<T>) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(report(reporting, stop.clone()));
        Self { stop, task }
    }

    /// Stops, after a write that is under way: nothing older can follow the last one.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let _ = (&mut self.task).await;
    }
}

async fn report<T: Transfer>(reporting: Reporting<T>, stop: CancellationToken) {
    let mut last = Value::Null;
    // The time a write takes is no part of the interval, as long as it is shorter.
    let mut due = Instant::now();
    loop {
        let status = status(&reporting.tree.snapshot(), reporting.floor);
        let now = Instant::now();
        if (now >= due && !same(&status, &last)) || stalled(&status) != stalled(&last) {
            due = now + reporting.running.interval();
            match reporting.record.show(&status).await {
                Ok(()) => last = status,
                Err(error) if error.code() == Some(404) => return reporting.gone.cancel(),
                Err(error) => debug!("{error}"),
            }
        }
        let now = Instant::now();
        let next = due.clamp(now + SHORTEST, now + LOOK_EVERY);
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// The task that stands still, if one does.
fn stalled(status: &Value) -> Option<&Value> {
    status.pointer("/plimsoll/stalled/task")
}

/// What the custom resource shows of a tree.
pub(super) fn status(snapshot: &Snapshot, floor: u64) -> Value {
    let mut status = json!({ "plimsoll": nulls_for_absent(&project::summary(snapshot, Timestamp::now())) });
    // The mover's own tree hangs below the root.
    let shown = snapshot.nodes.iter().skip(1).find_map(transfer_progress);
    if let Some(shown) = shown {
        let done = shown.bytes_done.max(floor).min(shown.total_bytes.saturating_sub(1));
        status["progress"] = json!({ "totalBytes": shown.total_bytes, "bytesDone": done });
    }
    status
}

/// The bytes that were shown before.
pub(super) fn floor(shown: Option<TransferProgress>) -> u64 {
    shown.and_then(|shown| shown.bytes_done).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0)
}

fn same(a: &Value, b: &Value) -> bool {
    let strip = |value: &Value| {
        let mut value = value.clone();
        if let Some(summary) = value.get_mut("plimsoll").and_then(Value::as_object_mut) {
            summary.remove("lastAdvance");
        }
        value
    };
    strip(a) == strip(b)
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Clock, Operation, Total, Unit};

    use super::*;

    #[test]
    fn with_160_transfers_each_is_written_within_two_seconds_and_a_thousand_stay_below_a_hundred_writes_a_second() {
        let running = Running::default();
        assert_eq!(running.interval(), EVERY);
        running.set("PodVolumeBackup", 150);
        running.set("PodVolumeRestore", 10);
        assert!(running.interval() < Duration::from_secs(2), "{:?}", running.interval());
        running.set("PodVolumeBackup", 990);
        let writes = 1000.0 / running.interval().as_secs_f64();
        assert!(writes < 95.0, "{writes} writes a second leave nothing for operations");
    }

    #[test]
    fn nothing_shown_goes_back_when_a_transfer_is_taken_up_again_and_nothing_reads_a_hundred_percent() {
        let tree = Operation::new("t", Clock::system());
        let mover = tree.root().child("built-in");
        let bytes = mover.meter(Unit::Bytes);
        assert_eq!(status(&tree.snapshot(), 0).get("progress"), None);
        bytes.set_total(Total::Final(100));
        bytes.set_done(10);
        assert_eq!(status(&tree.snapshot(), 0)["progress"], json!({"totalBytes": 100, "bytesDone": 10}));
        assert_eq!(status(&tree.snapshot(), 60)["progress"]["bytesDone"], 60);
        assert_eq!(status(&tree.snapshot(), 500)["progress"]["bytesDone"], 99);
    }
}
