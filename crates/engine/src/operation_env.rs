//! The part of the environment that backups, restores and deletions have in common.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_progress::Task;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::ports::{Journal, LeadershipGuard};

/// The environment of every operation.
pub struct OperationEnv {
    /// The cluster to read or to write to.
    pub cluster: Cluster,
    /// Checked before every effect.
    pub guard: Arc<dyn LeadershipGuard>,
    /// Journal of effects.
    pub journal: Arc<dyn Journal>,
    /// Cancels the operation.
    pub cancel: CancellationToken,
    /// Scratch directory of this operation.
    pub scratch: PathBuf,
    /// The stages are planned below this task.
    pub root: Task,
}
