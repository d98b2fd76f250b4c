//! The options of a backup.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::format::id::Id;
use crate::format::time::Time;

/// Returns `true` for a path to exclude.
pub type Filter = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// What to back up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Files and directories, each with its full path in the snapshot.
    Paths(Vec<PathBuf>),
    /// The content of a directory, in the root of the snapshot.
    Content(PathBuf),
    /// The content of a directory, with another path in the snapshot.
    Placed {
        /// The local path.
        directory: PathBuf,
        /// The path in the snapshot. Its parent directories get the metadata of the directory.
        at: PathBuf,
        /// The only entry of the directory to back up; `None` for all.
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

/// The parent snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parent {
    /// The newest snapshot of the same host and paths.
    #[default]
    Newest,
    /// No parent: read all files.
    None,
    /// This snapshot.
    Snapshot(Id),
}

/// The compression mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression of data.
    Off,
    /// Fast; incompressible data is stored uncompressed.
    #[default]
    Auto,
    /// Slow and small.
    Max,
}

/// The nodes that record their device ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceIds {
    /// Only hard links, which need it. A volume gets another device ID with every attach, which would change all trees.
    #[default]
    HardLinks,
    /// All nodes, as restic by default: trees are identical byte for byte.
    All,
}

/// The options of a backup.
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
#[derive(Clone)]
pub struct BackupOptions {
    /// What to back up.
    pub target: Target,
    /// The recorded paths of the snapshot instead of the target's.
    pub record_paths: Option<Vec<String>>,
    /// The host name in the snapshot.
    pub hostname: String,
    /// The tags of the snapshot.
    pub tags: Vec<String>,
    /// The filter of excluded paths.
    pub exclude: Option<Filter>,
    /// The exclude patterns to record in the snapshot.
    pub excludes: Vec<String>,
    /// The time of the snapshot; `None` for now.
    pub time: Option<Time>,
    /// The parent snapshot.
    pub parent: Parent,
    /// Do not compare inode numbers: they change when a volume is restored or cloned.
    pub ignore_inode: bool,
    /// Do not compare ctime.
    pub ignore_ctime: bool,
    /// Record access times.
    pub access_times: bool,
    /// Do not cross into other file systems.
    pub one_file_system: bool,
    /// The nodes that record their device ID.
    pub device_ids: DeviceIds,
    /// The compression mode.
    pub compression: Compression,
    /// The size at which a pack is closed, limited by the memory.
    pub pack_size: usize,
    /// The number of blobs to compress and encrypt at the same time, limited by the memory; 0 means one for each processor.
    pub workers: usize,
    /// The number of files to read at the same time, limited by the memory; 0 means one for each worker.
    pub readers: usize,
    /// The number of walker threads; 0 means one for two workers, at least two.
    pub walkers: usize,
    /// The scan for the total starts when the walk has taken this long or waits for the workers. Until then the walk is as fast, and
    /// may be complete if little has changed.
    pub count_ahead_after: Duration,
    /// The number of unindexed blobs that trigger an index file, so that packs of an interrupted backup need not be found by listing.
    pub index_every: usize,
    /// Decrypt and hash every new blob before its pack is closed.
    pub verify: bool,
    /// Write no snapshot if the tree is that of the parent.
    pub skip_if_unchanged: bool,
    /// An earlier attempt was interrupted: look for packs that it stored but did not index.
    pub resumed: bool,
    /// The program version in the snapshot.
    pub program: String,
}

const DEFAULT_PACK_SIZE: usize = 16 * 1024 * 1024;

/// The default number of blobs in an index file, as in restic.
const DEFAULT_INDEX_BLOBS: usize = 50_000;

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
            pack_size: DEFAULT_PACK_SIZE,
            workers: 0,
            readers: 0,
            walkers: 0,
            count_ahead_after: Duration::from_secs(10),
            index_every: DEFAULT_INDEX_BLOBS,
            verify: true,
            skip_if_unchanged: false,
            resumed: false,
            program: concat!("plimsoll ", env!("CARGO_PKG_VERSION")).into(),
        }
    }

    pub(crate) fn is_excluded(&self, path: &Path) -> bool {
        self.exclude.as_ref().is_some_and(|excludes| excludes(path))
    }

    pub(crate) fn recorded_paths(&self) -> Vec<String> {
        let target_paths = || self.target.paths().iter().map(|path| absolute(path)).collect();
        self.record_paths.clone().unwrap_or_else(target_paths)
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
