//! Options of `plimsoll local` and `plimsoll demo`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct Local {
    /// Directory for the objects, credentials and backups of the cluster
    #[arg(long, value_name = "DIR", default_value = ".plimsoll")]
    pub data_dir: PathBuf,
    /// Address to listen on; loopback only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Serve the API only; backups stay New until a `plimsoll server` runs
    #[arg(long)]
    pub no_server: bool,
    /// Run pods as processes of this machine
    ///
    /// There is no isolation: a user who may create a pod runs programs on this machine with the permissions of the user who
    /// started the cluster. Image names are ignored; a container runs its command with the programs of this machine, which
    /// it sees read-only.
    #[arg(long)]
    pub run_pods: bool,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// Number of objects of the application
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub objects: u32,
    /// Size of its database in MiB
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(8..=10_000))]
    pub megabytes: u64,
    /// Keep the cluster running at the end, until Ctrl-C
    #[arg(long)]
    pub stay: bool,
}
