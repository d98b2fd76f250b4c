//! Dependencies of creating and following transfers.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_operations::LeaderClient;
use plimsoll_progress::Trees;

use crate::mover_choice::MoverChoice;
use crate::repositories::Repositories;

/// Dependencies of creating and following transfers.
pub struct TransferServices {
    /// The connection of the leader.
    pub leader: LeaderClient,
    /// The repositories of the data.
    pub repositories: Arc<Repositories>,
    /// Which mover new backups of volumes use.
    pub mover: MoverChoice,
    /// Timeout of the wait for a pod that cannot start.
    pub resource_timeout: Duration,
    /// An agent that has not renewed its Lease for this long is taken for dead.
    pub agent_heartbeat_timeout: Duration,
    /// Copies of the trees in the memory of agents, by the uid of the transfer: fresher than what they have written.
    pub agent_trees: Trees,
}
