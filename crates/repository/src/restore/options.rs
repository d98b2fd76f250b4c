//! What to restore, and where to.

use std::path::PathBuf;

use crate::backup::Problem;
use crate::format::id::Id;

/// What happens to a file that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// It is replaced.
    #[default]
    Always,
    /// It is replaced unless size and mtime are those of the snapshot: takes up an interrupted restore.
    IfChanged,
    /// It is replaced if the snapshot's is newer.
    IfNewer,
    /// It stays.
    Never,
}

/// What to restore, and where to.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// The snapshot.
    pub snapshot: Id,
    /// A file or directory of the snapshot; empty for all. A directory's content comes directly into the target.
    pub path: PathBuf,
    /// Where to; made if it is missing.
    pub target: PathBuf,
    /// What happens to files that are there already.
    pub overwrite: Overwrite,
    /// Remove what the snapshot does not have. Without it also a directory stays that is in the place of something else, unless
    /// it is empty.
    pub delete: bool,
    /// Blobs, files or further names of files that are planned before they are restored: more take memory, with fewer of them
    /// parts of packs are read more than once.
    pub plan_ahead: usize,
    /// Threads that decode and write, at most as many as the memory allows; 0 means two for each processor.
    pub workers: usize,
    /// Leave holes where there are only zeros.
    pub sparse: bool,
}

/// What is usually planned before it is restored.
const PLAN_AHEAD: usize = 100_000;

impl RestoreOptions {
    /// A whole snapshot into this directory.
    pub fn new(snapshot: Id, target: impl Into<PathBuf>) -> Self {
        Self {
            snapshot,
            path: PathBuf::new(),
            target: target.into(),
            overwrite: Overwrite::Always,
            delete: false,
            plan_ahead: PLAN_AHEAD,
            workers: 0,
            sparse: true,
        }
    }
}

/// How a restore ended.
#[derive(Clone, Debug, Default)]
pub struct RestoreOutcome {
    /// Files restored completely.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were left as they are.
    pub skipped: u64,
    /// What could not be restored, or not completely: the first thousand.
    pub problems: Vec<Problem>,
    /// How many problems there were in all.
    pub problem_count: u64,
    /// Whether a lock file was kept: not where the store refuses deletes.
    pub locked: bool,
}
