//! Settings of an agent.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_mover::{MoverCommand, MoverKind};
use plimsoll_progress::Trees;

/// Settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The namespace of the transfers.
    pub namespace: String,
    /// The node it works for.
    pub node: String,
    /// Unique for each pod; the same after a restart of its container.
    pub identity: String,
    /// The kubelet's directory of pods.
    pub pods_directory: PathBuf,
    /// How many transfers run at the same time.
    pub concurrency: usize,
    /// The memory of the transfers that run at the same time, in bytes; `None` for the default of the built-in mover.
    pub memory: Option<u64>,
    /// How often the progress of other movers is polled. The built-in mover reports four times as often.
    pub progress_interval: Duration,
    /// The directory of caches that are kept between transfers.
    pub cache: Option<PathBuf>,
    /// Size limit of the caches of all repositories, in bytes.
    pub cache_limit: u64,
    /// The command that starts a mover.
    pub launch: MoverCommand,
    /// The program restic, if it is not the one in `PATH`.
    pub restic: Option<PathBuf>,
    /// The program kopia, if it is not the one in `PATH`.
    pub kopia: Option<PathBuf>,
    /// The trees of its transfers, by their uid.
    pub trees: Trees,
    /// The address at which other processes can read those trees.
    pub progress_address: Option<SocketAddr>,
}

impl AgentSettings {
    pub(crate) fn program(&self, kind: MoverKind) -> Option<PathBuf> {
        match kind {
            MoverKind::BuiltIn => None,
            MoverKind::Restic => self.restic.clone(),
            MoverKind::Kopia => self.kopia.clone(),
        }
    }
}
