//! The restic mover: backups with `backup --json`, restores with `restore`, in every version since 0.9.5. Repositories of
//! format version 2, which the leader initializes, require 0.14.

mod backup;
mod client;
mod errors;
mod messages;
pub(crate) mod repository;
mod restore;
mod tags;

use crate::builtin::BuiltIn;
use crate::job::{Backup, Maintenance, MoverKind, Restore, Verify};
use crate::mover::{Fidelity, Mover, Session};
use crate::outcome::{
    BackupOutcome, EnsureOutcome, LockInfo, MaintenanceOutcome, RestoreOutcome, SnapshotInfo, VerifyOutcome,
};
use crate::{MoverError, Result};

pub(crate) use client::address;
pub(crate) use tags::{format_tags, parse_tags};

use client::Client;

/// The mover that runs restic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restic;

impl Mover for Restic {
    fn kind(&self) -> MoverKind {
        MoverKind::Restic
    }

    fn fidelity(&self) -> Fidelity {
        Fidelity::OF_RESTIC_FORMAT
    }

    fn backup(&self, backup: &Backup, session: &Session) -> Result<BackupOutcome> {
        backup::run(&Client::open(session)?, backup)
    }

    fn restore(&self, restore: &Restore, session: &Session) -> Result<RestoreOutcome> {
        restore::run(&Client::open(session)?, restore)
    }

    fn ensure(&self, session: &Session) -> Result<EnsureOutcome> {
        repository::ensure(&Client::open(session)?)
    }

    fn snapshots(&self, session: &Session) -> Result<Vec<SnapshotInfo>> {
        repository::snapshots(&Client::open_repository(session)?, None)
    }

    fn forget(&self, snapshots: &[String], session: &Session) -> Result<usize> {
        repository::forget(&Client::open_repository(session)?, snapshots)
    }

    /// By the built-in engine, which works in slices and shows its progress; the format is the same.
    fn maintain(&self, maintenance: Maintenance, session: &Session) -> Result<MaintenanceOutcome> {
        BuiltIn.maintain(maintenance, session)
    }

    /// By the built-in engine, which names the affected snapshots.
    fn verify(&self, verify: &Verify, session: &Session) -> Result<VerifyOutcome> {
        BuiltIn.verify(verify, session)
    }

    fn locks(&self, session: &Session) -> Result<Vec<LockInfo>> {
        repository::locks(&Client::open_repository(session)?)
    }

    fn unlock(&self, locks: &[String], session: &Session) -> Result<usize> {
        let client = Client::open(session)?;
        for lock in locks {
            require_id(lock)?;
            client.probe.delete(&format!("locks/{lock}"))?;
        }
        Ok(locks.len())
    }
}

/// Validates an ID. IDs become arguments and keys, so only full or short hexadecimal IDs are allowed.
pub(crate) fn require_id(id: &str) -> Result<()> {
    let is_valid = (8..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_valid { Ok(()) } else { Err(MoverError::InvalidJob { cause: format!("invalid snapshot or lock ID {id:?}") }) }
}
