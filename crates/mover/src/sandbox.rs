//! Restricts the paths that external programs may write to (Landlock, Linux 5.13).
//!
//! The owner of a volume may have created a symbolic link to another pod's volume or to the node. The built-in mover follows none;
//! kopia and old versions of restic do, and run as root. The kernel restricts the programs of a restore to the volume and their own
//! directories. Without Landlock they do not restore as root.

use std::path::PathBuf;

use landlock::{
    ABI, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, path_beneath_rules,
};

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

/// Why a program is not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    #[error(transparent)]
    Rules(#[from] RulesetError),
    #[error(
        "the kernel of this node has no Landlock (Linux 5.13 and later), so this program could follow a link out of the volume \
         as root; restore with the built-in mover, or on another node"
    )]
    NoLandlock,
}

/// Restricts writes of this thread, and of the program that it executes, to these paths.
pub(crate) fn restrict_writes(paths: &[PathBuf]) -> Result<(), SandboxError> {
    let writing = AccessFs::from_write(WRITE_ABI);
    let rules = Ruleset::default().handle_access(writing)?.create()?;
    let restricted = rules.add_rules(path_beneath_rules(paths, writing))?.restrict_self()?;
    require_enforced(&restricted.ruleset, rustix::process::geteuid().is_root())
}

/// A user other than root reaches only what is its own. Kernels with an older Landlock enforce all but truncation and moves.
fn require_enforced(status: &RulesetStatus, is_root: bool) -> Result<(), SandboxError> {
    if is_root && *status == RulesetStatus::NotEnforced { Err(SandboxError::NoLandlock) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_landlock_no_program_restores_as_root() {
        assert!(matches!(require_enforced(&RulesetStatus::NotEnforced, true), Err(SandboxError::NoLandlock)));
        assert!(require_enforced(&RulesetStatus::NotEnforced, false).is_ok());
        for enforced in [RulesetStatus::FullyEnforced, RulesetStatus::PartiallyEnforced] {
            assert!(require_enforced(&enforced, true).is_ok());
        }
    }
}
