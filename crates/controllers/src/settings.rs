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
    /// Directory of the spools of running operations. Files of servers that have ended are removed at the start.
    pub scratch: PathBuf,
    /// Term of the Lease of the leader.
    pub lease_term: Duration,
    /// Maximum number of backups, and of restores, that run in parallel.
    pub concurrency: usize,
    /// Default TTL of backups.
    pub default_ttl: Duration,
    /// A request to object storage that moves no bytes for this long is retried.
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
    /// Items of a resource, and item blocks, that a backup processes in parallel.
    pub item_workers: usize,
    /// Values for fields that Backups and Restores do not set.
    pub defaults: Defaults,
    /// The controllers that do not run.
    pub disabled: DisabledControllers,
    /// How often expired backups that cannot be deleted are checked again.
    pub garbage_collection_frequency: Duration,
    /// Whether a new Schedule without `skipImmediately` waits until it is due next.
    pub schedule_skip_immediately: bool,
    /// Which mover new backups of volumes use.
    pub mover: MoverChoice,
    /// Whether Backups without `defaultVolumesToFsBackup` back up the files of all volumes.
    pub default_volumes_to_fs_backup: bool,
    /// Whether Velero's default password is accepted for repositories that this cluster has never used.
    pub adopt_default_repository_password: bool,
    /// Timeout of the transfer of one volume.
    pub fs_backup_timeout: Duration,
    /// An agent that has not renewed its Lease for this long is considered dead.
    pub agent_heartbeat_timeout: Duration,
    /// The init container of restored pods that waits for the data of their volumes.
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
    /// The image that provides our `kando` in the pods of blueprints; without it they use that of their image.
    pub tools: Option<ToolsImage>,
    /// The progress trees of running operations, by the uid of their subject.
    pub trees: Trees,
    /// Copies of the trees in the memory of agents, by the uid of the transfer: fresher than what they have written.
    pub transfers: Trees,
}

impl Settings {
    /// The defaults of a server that runs outside of a pod, without downloads and plugins.
    pub fn new(namespace: &str, scratch: PathBuf, identity: String, restore_helper: RestoreHelper) -> Self {
        Self {
            namespace: namespace.to_owned(),
            scratch,
            lease_term: Duration::from_secs(15),
            concurrency: 1,
            default_ttl: Duration::from_hours(720),
            store_idle: Duration::from_mins(1),
            resource_timeout: Duration::from_mins(10),
            terminating_timeout: Duration::from_mins(10),
            backup_sync_period: Duration::from_mins(1),
            store_validation_frequency: Duration::from_mins(1),
            client_page_size: 500,
            item_workers: 4,
            defaults: Defaults::default(),
            disabled: DisabledControllers::new(),
            garbage_collection_frequency: Duration::from_hours(1),
            schedule_skip_immediately: false,
            mover: MoverChoice::Auto,
            default_volumes_to_fs_backup: false,
            adopt_default_repository_password: false,
            fs_backup_timeout: Duration::from_hours(4),
            agent_heartbeat_timeout: Duration::from_secs(45),
            restore_helper,
            node_agent_config: NodeAgentConfig::default(),
            identity,
            pod: None,
            service_account: None,
            plugins: PluginSettings::default(),
            downloads: None,
            tools: None,
            trees: Trees::default(),
            transfers: Trees::default(),
        }
    }
}

/// Directory and environment of plugins.
#[derive(Clone, Debug, Default)]
pub struct PluginSettings {
    /// Every executable below this directory is a plugin; without it there are none.
    pub directory: Option<PathBuf>,
    /// Further environment variables that plugins inherit.
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
