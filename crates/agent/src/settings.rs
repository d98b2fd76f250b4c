//! How an agent is set up.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_mover::{MoverCommand, MoverKind};
use plimsoll_progress::Trees;

/// How an agent is set up.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The namespace of the transfers.
    pub namespace: String,
    /// The node it works for.
    pub node: String,
    /// The same after a restart of the same pod, another one's otherwise.
    pub identity: String,
    /// The kubelet's directory of pods.
    pub pods_directory: PathBuf,
    /// How many transfers run at the same time.
    pub concurrency: usize,
    /// How often other movers are asked how far they are; our own tells four times as often.
    pub progress_interval: Duration,
    /// What is worth keeping between two transfers.
    pub cache: Option<PathBuf>,
    /// How many bytes that may take between transfers, for all repositories together.
    pub cache_limit: u64,
    /// What starts a mover.
    pub launch: MoverCommand,
    /// The program restic, if it is not the one in `PATH`.
    pub restic: Option<PathBuf>,
    /// The program kopia, if it is not the one in `PATH`.
    pub kopia: Option<PathBuf>,
    /// Where the trees of its transfers are shown, by their uid.
    pub trees: Trees,
    /// Where others can read those trees.
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
