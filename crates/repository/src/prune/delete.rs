//! Deletes packs that no index file names.

use std::time::Instant;

use futures::stream::StreamExt;
use plimsoll_progress::Meter;
use plimsoll_store::StoreError;

use crate::cancel::Cancel;
use crate::format::id::Id;
use crate::lock::Lock;
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result};

/// The number of packs between two confirmations of the lock.
const CHUNK: usize = 100;
const MAX_CONCURRENT_DELETES: usize = 16;

/// A pack to delete and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackToDelete {
    pub id: Id,
    pub size: u64,
}

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deleted {
    pub packs: u64,
    pub bytes: u64,
    /// Packs whose deletion the store denied, because of retention for example.
    pub denied_packs: u64,
    pub denied_bytes: u64,
}

impl Deleted {
    pub(super) fn add(&mut self, other: Self) {
        self.packs += other.packs;
        self.bytes += other.bytes;
        self.denied_packs += other.denied_packs;
        self.denied_bytes += other.denied_bytes;
    }
}

/// Deletes packs until the deadline, at least some. Removes those that were tried from `packs`.
pub(super) fn delete_packs(
    repository: &Repository,
    lock: &Lock,
    packs: &mut Vec<PackToDelete>,
    deadline: Instant,
    done: &Meter,
    cancel: &Cancel,
) -> Result<Deleted> {
    let mut deleted = Deleted::default();
    let mut is_first = true;
    while !packs.is_empty() && (std::mem::take(&mut is_first) || Instant::now() < deadline) {
        lock.confirm(cancel)?;
        let chunk = packs.split_off(packs.len().saturating_sub(CHUNK));
        let deletes = chunk.iter().map(|pack| async move {
            let key = FileKind::Pack.key_of(&pack.id);
            // In memory, so it costs nothing: the machine may have been suspended.
            lock.check()?;
            Ok::<_, RepositoryError>((pack.size, repository.store.delete(&key).await))
        });
        let mut deletes = futures::stream::iter(deletes).buffer_unordered(MAX_CONCURRENT_DELETES);
        repository.wait(cancel, async {
            while let Some(outcome) = deletes.next().await {
                let (size, outcome) = outcome?;
                match outcome {
                    Ok(()) => deleted.add(Deleted { packs: 1, bytes: size, ..Deleted::default() }),
                    Err(StoreError::PermissionDenied { .. } | StoreError::Unsupported { .. }) => {
                        deleted.add(Deleted { denied_packs: 1, denied_bytes: size, ..Deleted::default() });
                    }
                    Err(error) => return Err(error.into()),
                }
                done.add(1);
            }
            Ok(())
        })?;
    }
    Ok(deleted)
}
