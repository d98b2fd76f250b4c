//! The write budget: all progress writes of a process take turns.
//!
//! ```text
//!   urgent writers ──┐
//!                    ├──▶ one permit after the other, at the write interval ──▶ reads its tree, and writes
//!   other writers  ──┘
//! ```
//! A writer takes its snapshot after it got its permit: what is written is never older than the write. Permits are given in the
//! order in which they were requested.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// A permit that was given up to this much too late does not delay the next one.
const MAX_CATCH_UP: Duration = Duration::from_millis(50);
/// How often a writer that waits for its permit looks whether its write has become urgent.
const URGENCY_INTERVAL: Duration = Duration::from_secs(1);
/// How often the interval is read again while it is waited for: it shrinks when more writers start.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Gives permits to write. Cheap to clone; ends with its last clone.
#[derive(Clone, Debug)]
pub struct WriteBudget {
    urgent: mpsc::UnboundedSender<oneshot::Sender<()>>,
    regular: mpsc::UnboundedSender<oneshot::Sender<()>>,
}

impl WriteBudget {
    /// Starts to give permits, each `interval` after the previous one. Needs a Tokio runtime.
    pub fn start(interval: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let ((urgent, first), (regular, second)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        tokio::spawn(give_permits(first, second, interval));
        Self { urgent, regular }
    }

    /// Waits for a permit. Urgent writes go before all others.
    pub async fn acquire(&self, urgent: bool) {
        let (permit, given) = oneshot::channel();
        let lane = if urgent { &self.urgent } else { &self.regular };
        // A closed channel means that the runtime ends: nothing is left to be paced.
        if lane.send(permit).is_ok() {
            let _ = given.await;
        }
    }

    /// Waits for a permit. A write that becomes urgent meanwhile goes before all others.
    pub async fn acquire_when(&self, mut is_urgent: impl FnMut() -> bool) {
        if is_urgent() {
            return self.acquire(true).await;
        }
        let mut regular = pin!(self.acquire(false));
        loop {
            tokio::select! {
                () = &mut regular => return,
                () = tokio::time::sleep(URGENCY_INTERVAL) => {}
            }
            if is_urgent() {
                return self.acquire(true).await;
            }
        }
    }
}

async fn give_permits(
    mut urgent: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    mut regular: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    interval: impl Fn() -> Duration,
) {
    let mut next = Instant::now();
    loop {
        let permit = tokio::select! {
            biased;
            Some(permit) = urgent.recv() => permit,
            Some(permit) = regular.recv() => permit,
            else => return,
        };
        // A writer that has gone in the meantime costs no permit.
        if permit.send(()).is_ok() {
            // A clock that only knows milliseconds must not slow the whole down: intervals add up from permit to permit.
            let late = interval().min(MAX_CATCH_UP);
            next = wait(next.max(Instant::now().checked_sub(late).unwrap_or(next)), &interval).await;
        }
    }
}

/// Waits until the interval has passed, and returns when that was.
async fn wait(from: Instant, interval: &impl Fn() -> Duration) -> Instant {
    loop {
        let (due, now) = (from + interval(), Instant::now());
        if due <= now {
            return due;
        }
        tokio::time::sleep_until(due.min(now + POLL_INTERVAL)).await;
    }
}
