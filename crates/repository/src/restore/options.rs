//! The options of a restore.

use std::path::PathBuf;

use crate::backup::Problem;
use crate::format::id::Id;

/// What happens to an existing file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// It is replaced.
    #[default]
    Always,
    /// It is replaced unless size and mtime match the snapshot: resumes an interrupted restore.
    IfChanged,
    /// It is replaced if the snapshot's is newer.
    IfNewer,
    /// It stays.
    Never,
}

/// The options of a restore.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// The snapshot.
    pub snapshot: Id,
    /// A file or directory of the snapshot; empty for all. The content of a directory is restored directly into the target.
    pub path: PathBuf,
    /// The target directory, created if it is missing.
    pub target: PathBuf,
    /// What happens to existing files.
    pub overwrite: Overwrite,
    /// Remove files that are not in the snapshot. Without it, a non-empty directory that conflicts with another entry stays.
    pub delete: bool,
    /// The number of blobs, files or hard links in a batch: more take more memory, fewer read parts of packs more than once.
    pub plan_ahead: usize,
    /// The number of worker threads, limited by the memory; 0 means two for each processor.
    pub workers: usize,
    /// Create holes for blocks of zeros.
    pub sparse: bool,
}

const DEFAULT_PLAN_AHEAD: usize = 100_000;

impl RestoreOptions {
    /// Restores a whole snapshot into this directory.
    pub fn new(snapshot: Id, target: impl Into<PathBuf>) -> Self {
        Self {
            snapshot,
            path: PathBuf::new(),
            target: target.into(),
            overwrite: Overwrite::Always,
            delete: false,
            plan_ahead: DEFAULT_PLAN_AHEAD,
            workers: 0,
            sparse: true,
        }
    }
}

/// The outcome of a restore.
#[derive(Clone, Debug, Default)]
pub struct RestoreOutcome {
    /// The number of completely restored files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The number of files that were kept.
    pub skipped: u64,
    /// The first thousand problems: files that were not restored or not completely.
    pub problems: Vec<Problem>,
    /// The number of all problems.
    pub problem_count: u64,
    /// Whether a lock file was kept. There is none if the store denies deletes.
    pub locked: bool,
}
