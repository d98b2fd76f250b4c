//! The program `kopia`, on repositories that Velero's node agent writes and reads too.
//!
//! The same as Velero's: user and host `default@default`, source `<requester>/kopia/<namespace>/<pod>/<claim>`, pin
//! `velero-pin`, kopia's default hash, encryption and splitter, no compression, no retention. One thing cannot be the same:
//! kopia's command line puts `tag:` before the key of every tag, so Velero does not take our snapshots for parents and
//! reads all files again, though it stores nothing twice. It restores them by their ID as it does its own.

mod backup;
mod client;
mod errors;
mod manifest;
mod owners;
mod policy;
mod progress;
mod repository;
mod restore;

use crate::job::{Backup, Kind, Restore};
use crate::mover::{Fidelity, Mover, Session};
use crate::outcome::{BackupOutcome, Ensured, LockInfo, RestoreOutcome, SnapshotInfo};
use crate::{MoverError, Result};

use client::Client;

/// The mover that runs kopia.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kopia;

impl Mover for Kopia {
    fn kind(&self) -> Kind {
        Kind::Kopia
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

    fn ensure(&self, session: &Session) -> Result<Ensured> {
        repository::ensure(&Client::open(session)?)
    }

    fn snapshots(&self, session: &Session) -> Result<Vec<SnapshotInfo>> {
        let client = Client::open(session)?;
        client.require_repository()?;
        repository::snapshots(&client)
    }

    fn forget(&self, snapshots: &[String], session: &Session) -> Result<usize> {
        let client = Client::open(session)?;
        client.require_repository()?;
        repository::forget(&client, snapshots)
    }

    fn locks(&self, _: &Session) -> Result<Vec<LockInfo>> {
        // Writers of a kopia repository do not exclude each other; only maintenance has an owner.
        Ok(Vec::new())
    }

    fn unlock(&self, _: &[String], _: &Session) -> Result<usize> {
        Ok(0)
    }
}

/// IDs become arguments. Only manifests' are let through: another object's would name every snapshot that contains it.
fn require_id(id: &str) -> Result<()> {
    let sound = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if sound {
        Ok(())
    } else {
        Err(MoverError::InvalidJob { cause: format!("{id:?} is not the ID of a kopia snapshot") })
    }
}
