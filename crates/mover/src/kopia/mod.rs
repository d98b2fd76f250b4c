//! The kopia mover, on repositories that are compatible with Velero's node agent.
//!
//! As in Velero: user and host `default@default`, source `<requester>/kopia/<namespace>/<pod>/<claim>`, pin
//! `velero-pin`, kopia's default hash, encryption and splitter, no compression, no retention. One difference:
//! kopia's command line prepends `tag:` to the key of every tag, so Velero does not use our snapshots as parents and reads all
//! files again, though it stores nothing twice. It restores our snapshots by their ID.

mod backup;
mod client;
mod errors;
mod interpolation;
mod maintenance;
mod manifest;
mod owners;
mod policy;
mod repository;
mod restore;

use crate::job::{Backup, Maintenance, MoverKind, Restore};
use crate::mover::{Fidelity, Mover, Session};
use crate::outcome::{BackupOutcome, EnsureOutcome, LockInfo, MaintenanceOutcome, RestoreOutcome, SnapshotInfo};
use crate::{MoverError, Result};

use client::Client;

/// The mover that runs kopia.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kopia;

impl Mover for Kopia {
    fn kind(&self) -> MoverKind {
        MoverKind::Kopia
    }

    fn fidelity(&self) -> Fidelity {
        Fidelity {
            hard_links: false,
            attributes: false,
            special_files: false,
            any_name: false,
            directory_times: false,
            empty_snapshots: true,
        }
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
        repository::snapshots(&Client::open_repository(session)?)
    }

    fn forget(&self, snapshots: &[String], session: &Session) -> Result<usize> {
        repository::forget(&Client::open_repository(session)?, snapshots)
    }

    fn maintain(&self, maintenance: Maintenance, session: &Session) -> Result<MaintenanceOutcome> {
        maintenance::run(&Client::open_repository(session)?, maintenance)
    }

    fn locks(&self, _: &Session) -> Result<Vec<LockInfo>> {
        // kopia has no locks for writers; only maintenance has an owner.
        Ok(Vec::new())
    }

    fn unlock(&self, _: &[String], _: &Session) -> Result<usize> {
        Ok(0)
    }
}

/// Validates an ID. IDs become arguments, so only manifest IDs are allowed: the ID of another object would select every snapshot
/// that contains it.
fn require_id(id: &str) -> Result<()> {
    let is_valid = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_valid { Ok(()) } else { Err(MoverError::InvalidJob { cause: format!("invalid kopia snapshot ID {id:?}") }) }
}
