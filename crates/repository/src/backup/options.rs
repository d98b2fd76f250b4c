//! What to back up, and how.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::format::id::Id;
use crate::format::time::Time;

/// Decides what is left out: answers `true` for a path that is not wanted.
pub type Filter = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// What to back up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Files and directories, each found in the snapshot under its full path.
    Paths(Vec<PathBuf>),
    /// The content of a directory, found directly in the root of the snapshot.
    Content(PathBuf),
    /// The content of a directory, found in the snapshot as if it lay somewhere else.
    Placed {
        /// Where it lies.
        directory: PathBuf,
        /// Where it is found: the directories on the way there are written like the directory itself.
        at: PathBuf,
        /// The one entry of it that is wanted, if not all of them are.
        only: Option<OsString>,
    },
}

impl Target {
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        match self {
            Self::Paths(paths) => paths.clone(),
            Self::Placed { directory, only: Some(name), .. } => vec![directory.join(name)],
            Self::Content(path) | Self::Placed { directory: path, .. } => vec![path.clone()],
        }
    }
}

/// Which snapshot to compare with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parent {
    /// The newest one of the same host and paths.
    #[default]
    Newest,
    /// None: read everything.
    None,
    /// This one.
    Snapshot(Id),
}

/// How much time to spend on compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Data is stored as it is.
    Off,
    /// Fast; data that does not shrink is stored as it is.
    #[default]
    Auto,
    /// Slow and small.
    Max,
}

/// Which nodes keep the number of the device they were on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceIds {
    /// Only hard links, which need it: a volume gets another number with every attach, and each would make new trees.
    #[default]
    HardLinks,
    /// All, as restic does by default: then trees are the same byte for byte.
    All,
}

/// How to back up.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own that users know by name")]
#[derive(Clone)]
pub struct BackupOptions {
    /// What to back up.
    pub target: Target,
    /// Paths to write into the snapshot instead of the target's own.
    pub record_paths: Option<Vec<String>>,
    /// The host's name in the snapshot.
    pub hostname: String,
    /// Words to find the snapshot by.
    pub tags: Vec<String>,
    /// What to leave out.
    pub exclude: Option<Filter>,
    /// The same in words, for the snapshot.
    pub excludes: Vec<String>,
    /// The time of the snapshot, if it is not now.
    pub time: Option<Time>,
    /// Which snapshot to compare with.
    pub parent: Parent,
    /// Do not look at inode numbers when comparing: they change when a volume is restored or cloned.
    pub ignore_inode: bool,
    /// Do not look at ctime when comparing.
    pub ignore_ctime: bool,
    /// Keep access times.
    pub access_times: bool,
    /// Do not cross into other file systems.
    pub one_file_system: bool,
    /// Which nodes keep their device number.
    pub device_ids: DeviceIds,
    /// How much time to spend on compression.
    pub compression: Compression,
    /// Bytes after which a pack is closed; at most 32 MiB, for the sake of memory.
    pub pack_size: usize,
    /// Threads that read, compress and seal, at most as many as the memory allows; 0 means one for each processor.
    pub workers: usize,
    /// Threads that look at files, at least one. More than one: on a cold or distant file system each look takes a while.
    pub walkers: usize,
    /// The total is counted ahead once the walk has taken this long, or has to wait for reading. Until then the walk itself finds it
    /// as quickly, and where little has changed that may be all.
    pub count_ahead_after: Duration,
    /// An index file is written whenever this many blobs are stored and in none yet, so that what an interrupted backup has
    /// stored need not be found by listing.
    pub index_every: usize,
    /// Open and hash every new blob again before its pack is closed.
    pub verify: bool,
    /// Write no snapshot if nothing differs from the parent.
    pub skip_if_unchanged: bool,
    /// The program's name in the snapshot.
    pub program: String,
}

/// The usual size of a pack.
const PACK_SIZE: usize = 16 * 1024 * 1024;

/// The usual number of blobs in an index file, as restic has it.
const INDEX_EVERY: usize = 50_000;

impl BackupOptions {
    /// The defaults for this target.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            record_paths: None,
            hostname: crate::system::hostname(),
            tags: Vec::new(),
            exclude: None,
            excludes: Vec::new(),
            time: None,
            parent: Parent::Newest,
            ignore_inode: false,
            ignore_ctime: false,
            access_times: false,
            one_file_system: false,
            device_ids: DeviceIds::HardLinks,
            compression: Compression::Auto,
            pack_size: PACK_SIZE,
            workers: 0,
            walkers: 2,
            count_ahead_after: Duration::from_secs(10),
            index_every: INDEX_EVERY,
            verify: true,
            skip_if_unchanged: false,
            program: concat!("plimsoll ", env!("CARGO_PKG_VERSION")).into(),
        }
    }

    pub(crate) fn leaves_out(&self, path: &Path) -> bool {
        self.exclude.as_ref().is_some_and(|unwanted| unwanted(path))
    }

    pub(crate) fn recorded_paths(&self) -> Vec<String> {
        let own = || self.target.paths().iter().map(|path| absolute(path)).collect();
        self.record_paths.clone().unwrap_or_else(own)
    }
}

fn absolute(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.to_string_lossy().into_owned()
}

impl fmt::Debug for BackupOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BackupOptions")
            .field("target", &self.target)
            .field("hostname", &self.hostname)
            .field("tags", &self.tags)
            .finish_non_exhaustive()
    }
}
