//! Settings of the server.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_blueprint::functions::ToolsImage;
use plimsoll_progress::Trees;
use plimsoll_volumes::fs_backup::RestoreHelper;
use plimsoll_volumes::{MoverChoice, NodeAgentConfig};

use crate::defaults::Defaults;
use crate::disabled::DisabledControllers;

/// Settings of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace whose custom resources it serves.
    pub namespace: String,
    /// Where spools go while an operation runs. Emptied of what dead servers left.
    pub scratch: PathBuf,
    /// Term of the Lease of the leader.
    pub lease_term: Duration,
    /// Maximum number of backups, and of restores, that run in parallel.
    pub concurrency: usize,
    /// Default TTL of backups.
    pub default_ttl: Duration,
    /// A request to object storage that moves no bytes for this long is tried again.
    pub store_idle: Duration,
    /// Timeout of waits for CustomResourceDefinitions, additional items and containers.
    pub resource_timeout: Duration,
    /// Timeout of waits for objects that are being deleted.
    pub terminating_timeout: Duration,
    /// Default sync period of locations; zero means never.
    pub backup_sync_period: Duration,
    /// Default interval of the checks of locations; zero means once.
    pub store_validation_frequency: Duration,
    /// Page size of lists of objects during a backup; zero means one page.
    pub client_page_size: u32,
    /// How many items of a resource, and item blocks, a backup processes side by side.
    pub item_workers: usize,
    /// What Backups and Restores leave out.
    pub defaults: Defaults,
    /// The controllers that do not run.
    pub disabled: DisabledControllers,
    /// How often expired backups that cannot be deleted are checked again.
    pub garbage_collection_frequency: Duration,
    /// Whether a new schedule that does not say waits for the next time it is due.
    pub schedule_skip_immediately: bool,
    /// Which mover new backups of volumes use.
    pub mover: MoverChoice,
    /// Whether backups that do not say have the files of all volumes backed up.
    pub default_volumes_to_fs_backup: bool,
    /// Whether Velero's default password is accepted for repositories that this cluster has never used.
    pub adopt_default_repository_password: bool,
    /// Timeout of the transfer of one volume.
    pub fs_backup_timeout: Duration,
    /// An agent that has not renewed its Lease for this long is taken for dead.
    pub agent_heartbeat_timeout: Duration,
    /// What waits, in a restored pod, for the data of its volumes.
    pub restore_helper: RestoreHelper,
    /// Settings of the pods that hold the volumes of DataUploads and DataDownloads.
    pub node_agent_config: NodeAgentConfig,
    /// Unique for each process.
    pub identity: String,
    /// The pod this process runs in, if it does: it is marked while it leads.
    pub pod: Option<String>,
    /// The service account of that pod, for the pods of blueprints beside it.
    pub service_account: Option<String>,
    /// Directory and environment of plugins.
    pub plugins: PluginSettings,
    /// Serves the objects of directory locations by signed links.
    pub downloads: Option<DownloadSettings>,
    /// How our own `kando` gets into the pods of blueprints; without it they use their image's own.
    pub tools: Option<ToolsImage>,
    /// Where the trees of what it works on are shown, by the uid of their subject.
    pub trees: Trees,
    /// Copies of the trees in the memory of agents, by the uid of the transfer: fresher than what they have written.
    pub transfers: Trees,
}

/// Directory and environment of plugins.
#[derive(Clone, Debug, Default)]
pub struct PluginSettings {
    /// Every executable below it is one; none without it.
    pub directory: Option<PathBuf>,
    /// What they may see of the environment beside what all of them do.
    pub environment: Vec<String>,
    /// The beginning of a command that starts a program so that it dies with this process.
    pub guard: Vec<OsString>,
}

/// Settings of downloads from directory locations.
#[derive(Clone, Debug)]
pub struct DownloadSettings {
    /// Address to listen on.
    pub address: SocketAddr,
    /// The address in the links, such as `https://backups.example.com`; a loopback listener knows its own.
    pub url: Option<String>,
    /// Certificate chain and key, in PEM: the listener speaks HTTPS.
    pub tls: Option<(PathBuf, PathBuf)>,
}
