//! Options of `plimsoll server`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values::duration;
use super::{dashboard, server_defaults, volumes};

#[derive(Debug, Args)]
pub struct Server {
    /// Directory for temporary files of running operations
    #[arg(long, value_name = "DIR", env = "PLIMSOLL_SCRATCH_DIR")]
    pub scratch_dir: Option<PathBuf>,
    /// Time without a renewal of the Lease after which another server becomes leader
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub lease_duration: Duration,
    /// Number of backups, and of restores, that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64),
        alias = "concurrent-backups")]
    pub concurrency: u16,
    /// Retention of backups without a TTL
    #[arg(long, value_name = "DURATION", default_value = "720h", value_parser = duration)]
    pub default_backup_ttl: Duration,
    /// Time without a transferred byte after which a request to object storage is retried
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub store_idle_timeout: Duration,
    /// Timeout of a restore for definitions, additional items and containers of hooks to be ready
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub resource_timeout: Duration,
    /// Timeout of a restore for terminating objects to disappear
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub terminating_resource_timeout: Duration,
    /// Interval of syncing the backups of locations without one into the cluster; 0 disables it
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub backup_sync_period: Duration,
    /// Interval of retrying the deletion of expired backups
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub garbage_collection_frequency: Duration,
    /// Skip the immediate first backup of new schedules that do not set skipImmediately
    #[arg(long)]
    pub schedule_skip_immediately: bool,
    /// Directory of plugins; every executable in it is loaded at start
    #[arg(long, value_name = "DIR", default_value = "/plugins", env = "PLIMSOLL_PLUGIN_DIR")]
    pub plugin_dir: PathBuf,
    /// Environment variable to pass to plugins, or a prefix followed by *; may be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub plugin_env: Vec<String>,
    /// Address to listen on for downloads of files from directory locations, by signed URL
    #[arg(long, value_name = "ADDRESS", env = "PLIMSOLL_DOWNLOAD_ADDRESS")]
    pub download_address: Option<SocketAddr>,
    /// Base URL of the signed URLs, e.g. https://backups.example.com; not needed for a loopback address
    #[arg(long, value_name = "URL", env = "PLIMSOLL_DOWNLOAD_URL", requires = "download_address")]
    pub download_url: Option<String>,
    #[command(flatten)]
    pub dashboard: dashboard::Dashboard,
    #[command(flatten)]
    pub volumes: volumes::Volumes,
    #[command(flatten)]
    pub defaults: server_defaults::ServerDefaults,
    /// Certificate chain in PEM for downloads over HTTPS
    #[arg(long, value_name = "FILE", requires_all = ["download_address", "download_tls_key"])]
    pub download_tls_cert: Option<PathBuf>,
    /// Private key of that certificate in PEM
    #[arg(long, value_name = "FILE", requires = "download_tls_cert")]
    pub download_tls_key: Option<PathBuf>,
    /// Image of this program, from which `kando` is copied into the pods of blueprints, replacing their own
    #[arg(long, value_name = "IMAGE", env = "PLIMSOLL_TOOLS_IMAGE")]
    pub tools_image: Option<String>,
}
