//! Restricts the paths that external programs may write to (Landlock, Linux 5.13).
//!
//! The owner of a volume may have created a symbolic link to another pod's volume or to the node. The built-in mover follows none;
//! kopia and old versions of restic do, and run as root. The kernel restricts the programs of a restore to the volume and their own
//! directories. On kernels without Landlock they run without the restriction.

use std::path::PathBuf;

use landlock::{ABI, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, path_beneath_rules};

use crate::job::{Job, Work};

/// Covers creating, writing, moving and removing files, directories and links; not reading.
const WRITE_ABI: ABI = ABI::V3;

/// The paths that the programs of a job may write to. Empty means no restriction.
pub(crate) fn writable_paths(job: &Job, own: &[PathBuf]) -> Vec<PathBuf> {
    let Work::Restore(restore) = &job.work else { return Vec::new() };
    let location = job.repository.location.location();
    // restic stores its locks in the repository.
    let repository =
        matches!(location.kind(), "directory" | "local").then(|| location.path().map(PathBuf::from)).flatten();
    let all = [restore.directory.clone(), "/dev/null".into()].into_iter().chain(repository).chain(job.cache.clone());
    all.chain(own.iter().cloned()).collect()
}

/// Restricts writes of this thread, and of the program that it executes, to these paths.
pub(crate) fn restrict_writes(paths: &[PathBuf]) -> Result<(), RulesetError> {
    let writing = AccessFs::from_write(WRITE_ABI);
    let rules = Ruleset::default().handle_access(writing)?.create()?;
    rules.add_rules(path_beneath_rules(paths, writing))?.restrict_self().map(drop)
}
