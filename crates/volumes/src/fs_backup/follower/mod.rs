//! Follows the transfers of a backup or restore: shows each as a task, and detects obstacles.
//!
//! ```text
//!  watch ─────┐
//!  trees ─────┼──▶ entries ──▶ followed_transfer ──▶ task, TransferResult
//!  obstacles ─┘
//! ```

mod entries;
mod followed_transfer;
mod obstacles;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, future};
use plimsoll_progress::Task;

use self::entries::{Entries, lock};
use self::followed_transfer::FollowedTransfer;
use super::obstacle::BlockableTransfer;
use super::services::TransferServices;

/// The result of a transfer, once it has ended.
pub type TransferResult<T> = future::Shared<future::BoxFuture<'static, Result<Arc<T>, TransferLost>>>;

/// Why the result of a transfer is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferLost {
    /// It was deleted.
    Deleted,
    /// It could not be read until its timeout.
    Unread,
}

impl fmt::Display for TransferLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleted => "was deleted",
            Self::Unread => "could not be read until its timeout",
        })
    }
}

/// Follows transfers until it is dropped.
pub struct Follower<T> {
    entries: Entries<T>,
    driver: tokio::task::JoinHandle<()>,
    /// Timeout of a transfer.
    limit: Duration,
}

impl<T> Drop for Follower<T> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl<T: BlockableTransfer> Follower<T> {
    /// Follows the transfers with a label.
    pub fn start(services: &Arc<TransferServices>, selector: String, limit: Duration) -> Self {
        let entries: Entries<T> = Arc::default();
        let driver = tokio::spawn(drive(Arc::clone(services), selector, Arc::clone(&entries)));
        Self { entries, driver, limit }
    }

    /// Shows a transfer as a task, which ends with it.
    pub fn follow(&self, name: &str, task: Task) -> TransferResult<T> {
        let (mut followed, receiver) = FollowedTransfer::new(task, self.limit);
        let mut entries = lock(&self.entries);
        let entry = entries.entry(name.to_owned()).or_default();
        if let Some(latest) = entry.latest.clone() {
            followed.update(&latest);
        }
        entry.followed = Some(followed);
        receiver.map(|ended| ended.unwrap_or(Err(TransferLost::Unread))).boxed().shared()
    }
}

/// Runs the three loops in parallel, so that a slow request of one does not delay the others.
async fn drive<T: BlockableTransfer>(services: Arc<TransferServices>, selector: String, entries: Entries<T>) {
    tokio::join!(
        watch::watch(&services, &selector, &entries),
        obstacles::poll_obstacles(&services, &entries),
        watch::poll_agent_trees(&services.agent_trees, &entries),
    );
}

#[cfg(test)]
mod tests;
