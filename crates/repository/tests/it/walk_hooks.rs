//! Hooks into the walk of a backup: a test acts when the walk reaches a path.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_repository::backup::BackupOptions;

use crate::testbed::Testbed;

pub type Exclude = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// Options with one walker and an immediate scan.
pub fn single_walker(testbed: &Testbed) -> BackupOptions {
    BackupOptions { walkers: 1, count_ahead_after: Duration::ZERO, ..testbed.options() }
}

/// Calls `then` when the walk reaches this path. The scan runs on another thread.
pub fn when_walked_to(end_of_path: &'static str, then: impl Fn() + Send + Sync + 'static) -> Exclude {
    Arc::new(move |path: &Path| {
        if path.ends_with(end_of_path) && is_walk() {
            then();
        }
        false
    })
}

pub fn is_walk() -> bool {
    std::thread::current().name() == Some("walk")
}
