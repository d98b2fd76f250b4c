//! The program `restic`: backups by `backup --json`, restores by `restore`, in every version since 0.9.5, as far
//! as it reads the repository: those of version 2, which the leader makes, take 0.14.

mod backup;
mod client;
mod errors;
mod messages;
pub(crate) mod repository;
mod restore;
mod tags;

use crate::job::{Backup, Kind, Restore};
use crate::mover::{Fidelity, Mover, Session};
use crate::outcome::{BackupOutcome, Ensured, LockInfo, RestoreOutcome, SnapshotInfo};
use crate::{MoverError, Result};

pub(crate) use client::address;
pub(crate) use tags::{from_words, to_words};

use client::Client;

/// The mover that runs restic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restic;

impl Mover for Restic {
    fn kind(&self) -> Kind {
        Kind::Restic
    }

    fn fidelity(&self) -> Fidelity {
        // "snapshot is empty" is an error to restic.
        Fidelity {
            hard_links: true,
            attributes: true,
            special_files: true,
            any_name: true,
            directory_times: true,
            empty_snapshots: false,
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
        repository::snapshots(&client, None)
    }

    fn forget(&self, snapshots: &[String], session: &Session) -> Result<usize> {
        let client = Client::open(session)?;
        client.require_repository()?;
        repository::forget(&client, snapshots)
    }

    fn locks(&self, session: &Session) -> Result<Vec<LockInfo>> {
        let client = Client::open(session)?;
        client.require_repository()?;
        repository::locks(&client)
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

/// IDs become arguments and keys: nothing but the hexadecimal digits of a whole or a short one is let through.
pub(crate) fn require_id(id: &str) -> Result<()> {
    let sound = (8..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if sound {
        Ok(())
    } else {
        Err(MoverError::InvalidJob { cause: format!("{id:?} is not the ID of a snapshot or lock") })
    }
}
