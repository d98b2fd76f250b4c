//! What can be typed for the node's side.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{bytes, duration};

/// One namespace's kopia cache may have 2 GiB.
pub const DEFAULT_CACHE_LIMIT: &str = "5Gi";

/// `plimsoll agent`
#[derive(Debug, Args)]
pub struct Agent {
    /// The node this agent works for
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node: String,
    /// The name of its pod: an agent that comes back under the same name takes its transfers up at once
    #[arg(long, value_name = "NAME", env = "POD_NAME", hide = true)]
    pub pod: Option<String>,
    /// The kubelet's directory of pods, as it is mounted here
    #[arg(long, value_name = "DIR", default_value = "/host_pods")]
    pub pods_directory: PathBuf,
    /// Listen here and tell the server how far transfers are, straight from memory; without it only their resources do
    #[arg(long, value_name = "ADDRESS", env = "PLIMSOLL_PROGRESS_ADDRESS")]
    pub progress_address: Option<SocketAddr>,
    /// The address of this pod, under which the server finds it
    #[arg(long, value_name = "IP", env = "POD_IP", hide = true)]
    pub pod_ip: Option<IpAddr>,
    /// How many transfers run at the same time on this node
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub concurrency: u16,
    /// How often restic and kopia are asked how far they are; the built-in mover tells four times as often
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub progress_interval: Duration,
    /// What is worth keeping between two transfers: indexes of repositories
    #[arg(long, value_name = "DIR", env = "PLIMSOLL_CACHE_DIR")]
    pub cache_dir: Option<PathBuf>,
    /// How much of that stays between two transfers, for all repositories together; what was longest unused goes first
    #[arg(long, value_name = "QUANTITY", default_value = DEFAULT_CACHE_LIMIT, value_parser = bytes)]
    pub cache_limit: u64,
    /// The program restic, if it is not the one in PATH
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_RESTIC")]
    pub restic: Option<PathBuf>,
    /// The program kopia, if it is not the one in PATH
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_KOPIA")]
    pub kopia: Option<PathBuf>,
}

/// `plimsoll restore-wait`
#[derive(Debug, Args)]
pub struct RestoreWait {
    /// The uid of the Restore whose data is waited for
    #[arg(value_name = "UID")]
    pub restore: String,
    /// Where the volumes are mounted
    #[arg(long, value_name = "DIR", default_value = "/restores")]
    pub directory: PathBuf,
    /// Look at nothing and never end: the volumes are only to be mounted
    #[arg(long)]
    pub hold: bool,
}
