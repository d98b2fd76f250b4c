//! How a server is set up.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_blueprint::functions::ToolsImage;
use plimsoll_progress::Trees;
use plimsoll_volumes::MoverChoice;
use plimsoll_volumes::fs_backup::RestoreHelper;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace whose custom resources it serves.
    pub namespace: String,
    /// Where spools go while an operation runs. Emptied of what dead servers left.
    pub scratch: PathBuf,
    /// How long a leader may be silent before another one takes over.
    pub lease_term: Duration,
    /// How many backups, and how many restores, run at the same time.
    pub concurrency: usize,
    /// How long backups are kept that do not say.
    pub default_ttl: Duration,
    /// A request to object storage that moves no bytes for this long is tried again.
    pub store_idle: Duration,
    /// How long definitions, additional items and containers are waited for.
    pub resource_timeout: Duration,
    /// How long objects that are being deleted are waited for.
    pub terminating_timeout: Duration,
    /// How often locations are synced that do not say; zero is never.
    pub backup_sync_period: Duration,
    /// How often backups that cannot be deleted although they have expired are looked at again.
    pub garbage_collection_frequency: Duration,
    /// Whether a new schedule that does not say waits for the next time it is due.
    pub schedule_skip_immediately: bool,
    /// Which mover new backups of volumes use.
    pub mover: MoverChoice,
    /// Whether backups that do not say have the files of all volumes backed up.
    pub default_volumes_to_fs_backup: bool,
    /// How long the transfer of one volume may take.
    pub fs_backup_timeout: Duration,
    /// An agent that has not renewed its Lease for this long is taken for dead.
    pub agent_heartbeat_timeout: Duration,
    /// What waits, in a restored pod, for the data of its volumes.
    pub restore_helper: RestoreHelper,
    /// Unique for each process.
    pub identity: String,
    /// The pod this process runs in, if it does: it is marked while it leads.
    pub pod: Option<String>,
    /// The service account of that pod, for the pods of blueprints beside it.
    pub service_account: Option<String>,
    /// Where plugins are, and how they are started.
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

/// Where plugins are, and how they are started.
#[derive(Clone, Debug, Default)]
pub struct PluginSettings {
    /// Every executable below it is one; none without it.
    pub directory: Option<PathBuf>,
    /// What they may see of the environment beside what all of them do.
    pub environment: Vec<String>,
    /// The beginning of a command that starts a program so that it dies with this process.
    pub guard: Vec<OsString>,
}

/// How links to directory locations are served.
#[derive(Clone, Debug)]
pub struct DownloadSettings {
    /// Where to listen.
    pub address: SocketAddr,
    /// The address in the links, such as `https://backups.example.com`; a loopback listener knows its own.
    pub url: Option<String>,
    /// Certificate chain and key, in PEM: the listener speaks HTTPS.
    pub tls: Option<(PathBuf, PathBuf)>,
}
