//! Where somebody else's program may write.
//!
//! What is in a volume is its owner's, who may have put a link there that leads to another pod's volume or to the node. Our own mover
//! follows none; kopia and old versions of restic do, and run as root. So the kernel is asked to keep the programs of a restore from writing
//! anywhere but below the volume and their own directories (Landlock, Linux 5.13). Where the kernel cannot, they run without.

use std::path::PathBuf;

use landlock::{ABI, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, path_beneath_rules};

use crate::job::{Job, Work};

/// Files, directories and links, and moving them about; nothing about reading.
const WRITING: ABI = ABI::V3;

/// The directories that the programs of a job may write to. None means everywhere.
pub(crate) fn places(job: &Job, own: &[PathBuf]) -> Vec<PathBuf> {
    let Work::Restore(restore) = &job.work else { return Vec::new() };
    let location = job.repository.place.location();
    // restic keeps its locks in the repository.
    let repository =
        matches!(location.kind(), "directory" | "local").then(|| location.path().map(PathBuf::from)).flatten();
    let all = [restore.directory.clone(), "/dev/null".into()].into_iter().chain(repository).chain(job.cache.clone());
    all.chain(own.iter().cloned()).collect()
}

/// Keeps this thread, and what it becomes, from writing anywhere else.
pub(crate) fn confine(places: &[PathBuf]) -> Result<(), RulesetError> {
    let writing = AccessFs::from_write(WRITING);
    let rules = Ruleset::default().handle_access(writing)?.create()?;
    rules.add_rules(path_beneath_rules(places, writing))?.restrict_self().map(drop)
}
