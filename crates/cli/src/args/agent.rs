//! Arguments of the node agent.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values::{bytes, duration};

/// Enough for the 2 GiB of kopia's cache of one namespace, twice.
pub const DEFAULT_CACHE_LIMIT: &str = "5Gi";

/// `plimsoll agent`
#[derive(Debug, Args)]
pub struct Agent {
    /// Name of the node
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node: String,
    /// Name of the pod; an agent that restarts under the same name resumes its transfers at once
    #[arg(long, value_name = "NAME", env = "POD_NAME", hide = true)]
    pub pod: Option<String>,
    /// Mount point of the kubelet's pods directory
    #[arg(long, value_name = "DIR", default_value = "/host_pods")]
    pub pods_directory: PathBuf,
    /// Address to listen on for progress requests of the server; without it progress comes from the custom resources only
    #[arg(long, value_name = "ADDRESS", env = "PLIMSOLL_PROGRESS_ADDRESS")]
    pub progress_address: Option<SocketAddr>,
    /// IP address of this pod, for the server
    #[arg(long, value_name = "IP", env = "POD_IP", hide = true)]
    pub pod_ip: Option<IpAddr>,
    /// Number of transfers that run at the same time on this node
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub concurrency: u16,
    /// Memory of all transfers of the built-in mover [default: half of what the container's limit leaves; without a limit
    /// 200M, and 40M for each CPU above two]
    #[arg(long, value_name = "QUANTITY", value_parser = bytes)]
    pub memory: Option<u64>,
    /// ConfigMap with the number of transfers of each node, in the format of Velero's node agents; it replaces --concurrency
    #[arg(long, value_name = "NAME", env = "PLIMSOLL_NODE_AGENT_CONFIGMAP")]
    pub node_agent_configmap: Option<String>,
    /// Interval of progress updates of restic and kopia; the built-in mover reports four times as often
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub progress_interval: Duration,
    /// Directory for cached repository indexes
    #[arg(long, value_name = "DIR", env = "PLIMSOLL_CACHE_DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Maximum size of the cache between transfers; the least recently used repositories are evicted first
    #[arg(long, value_name = "QUANTITY", default_value = DEFAULT_CACHE_LIMIT, value_parser = bytes)]
    pub cache_limit: u64,
    /// Path of restic [default: restic in PATH]
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_RESTIC")]
    pub restic: Option<PathBuf>,
    /// Path of kopia [default: kopia in PATH]
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_KOPIA")]
    pub kopia: Option<PathBuf>,
}

/// `plimsoll restore-wait`
#[derive(Debug, Args)]
pub struct RestoreWait {
    /// UID of the Restore
    #[arg(value_name = "UID")]
    pub restore: String,
    /// Directory in which the volumes are mounted
    #[arg(long, value_name = "DIR", default_value = "/restores")]
    pub directory: PathBuf,
    /// Wait forever: the volumes only have to be mounted
    #[arg(long)]
    pub hold: bool,
}

#[derive(Debug, Args)]
pub struct Mover {
    /// Execute COMMAND, and exit when the process with this number exits
    #[arg(long, value_name = "PID", requires = "command")]
    pub guard: Option<u32>,
    /// Confine writes of COMMAND to DIR; may be repeated
    #[arg(long, value_name = "DIR", requires = "guard")]
    pub writes: Vec<PathBuf>,
    /// Command to execute
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}
