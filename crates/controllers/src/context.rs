//! What every controller needs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use plimsoll_blueprint::functions::ToolsImage;
use plimsoll_engine::cluster::Cluster;
use plimsoll_plugin::PluginRegistry;
use plimsoll_progress::Trees;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::downloads::Downloads;
use crate::events::Events;
use crate::leader::Fence;
use crate::live::LiveOperations;
use crate::operation::Holder;
use crate::repositories::Repositories;
use crate::sync::Warnings;
use crate::volumes::{Helper, MoverChoice};
use crate::writes::Writes;

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
    /// A node's agent that was not heard of for this long is taken for dead.
    pub agent_silence: Duration,
    /// What waits, in a restored pod, for the data of its volumes.
    pub restore_helper: Helper,
    /// Unique for each process.
    pub identity: String,
    /// The pod this process runs in, if it does: it is marked while it leads.
    pub pod: Option<String>,
    /// The service account of that pod, for the pods of blueprints beside it.
    pub service_account: Option<String>,
    /// Where plugins are, and how they are started.
    pub plugins: PluginSettings,
    /// Serves the objects of directory locations to whoever has a signed link.
    pub downloads: Option<Downloads>,
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
    pub guard: Vec<std::ffi::OsString>,
}

/// What every controller needs.
pub struct Context {
    pub client: Client,
    pub cluster: Cluster,
    pub settings: Settings,
    pub epoch: u64,
    pub fence: Arc<Fence>,
    pub runs: Runs,
    pub events: Events,
    pub live: LiveOperations,
    /// Turns to write progress.
    pub writes: Writes,
    /// What is known about the repositories of volume data.
    pub repositories: Repositories,
    /// What plugins offer.
    pub plugins: PluginRegistry,
    /// What looks wrong in which location.
    pub sync_warnings: Warnings,
    /// What comes before the path in a link to a directory's object.
    pub download_base: Option<String>,
}

impl Context {
    /// This process, as the holder of what it takes up.
    pub fn holder(&self) -> Holder {
        Holder { epoch: self.epoch, fence: Arc::clone(&self.fence), identity: self.settings.identity.clone() }
    }
}

/// The operations this process is working on.
pub struct Runs {
    running: Mutex<HashMap<String, Running>>,
    ended: broadcast::Sender<()>,
}

struct Running {
    verb: &'static str,
    name: String,
    cancel: CancellationToken,
}

impl Default for Runs {
    fn default() -> Self {
        Self { running: Mutex::default(), ended: broadcast::channel(16).0 }
    }
}

impl Runs {
    /// Takes up a subject, unless it is being worked on or `limit` others of its verb are.
    pub fn begin(self: &Runs, uid: &str, verb: &'static str, name: &str, limit: usize) -> Option<CancellationToken> {
        let mut running = self.lock();
        let busy = running.values().filter(|run| run.verb == verb).count() >= limit;
        if busy || running.contains_key(uid) {
            return None;
        }
        let cancel = CancellationToken::new();
        running.insert(uid.to_owned(), Running { verb, name: name.to_owned(), cancel: cancel.clone() });
        Some(cancel)
    }

    /// Puts a subject down and lets the queue move.
    pub fn end(&self, uid: &str) {
        self.lock().remove(uid);
        let _ = self.ended.send(());
    }

    /// Whether this subject is being worked on.
    pub fn has(&self, uid: &str) -> bool {
        self.lock().contains_key(uid)
    }

    /// Names of the subjects of a verb that are being worked on.
    pub fn names(&self, verb: &str) -> Vec<String> {
        self.lock().values().filter(|run| run.verb == verb).map(|run| run.name.clone()).collect()
    }

    /// Asks the work on a subject to stop.
    pub fn cancel(&self, uid: &str) {
        if let Some(run) = self.lock().get(uid) {
            run.cancel.cancel();
        }
    }

    /// Something each time an operation has ended.
    pub fn endings(&self) -> broadcast::Receiver<()> {
        self.ended.subscribe()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Running>> {
        self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
