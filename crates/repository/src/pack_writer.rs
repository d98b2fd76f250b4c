//! Writes blobs of any source into new packs, and lists the packs for the index.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_store::ALIGNMENT;

use crate::backup::buffers::Buffers;
use crate::backup::packer::{BlobEncoder, EncryptedBlob, FullPack, Packer, SLACK};
use crate::format::blob::BlobKind;
use crate::format::index::IndexedPack;
use crate::lock::Lock;
use crate::repository::{FileKind, Repository};
use crate::stop::StopState;
use crate::{RepositoryError, Result};

/// One open pack of data, one of trees, and at least one that is being stored.
const MIN_PACKS: usize = 3;
const MIN_PACK_SIZE: usize = 4 << 20;

/// Appends blobs of several threads to packs and stores full packs in the background.
pub(crate) struct PackWriter<'a> {
    repository: &'a Arc<Repository>,
    lock: &'a Lock,
    data: Mutex<Packer>,
    trees: Mutex<Packer>,
    uploads: Arc<(Mutex<Uploads>, Condvar)>,
    stop: &'a StopState<'a>,
}

#[derive(Default)]
struct Uploads {
    in_flight: usize,
    stored: Vec<IndexedPack>,
    failure: Option<RepositoryError>,
}

impl<'a> PackWriter<'a> {
    /// Packs of `pack_size` bytes, or smaller ones if `memory` bytes do not suffice for them.
    pub(crate) fn new(
        repository: &'a Arc<Repository>,
        lock: &'a Lock,
        pack_size: usize,
        memory: usize,
        stop: &'a StopState<'a>,
    ) -> Self {
        let overhead = SLACK + ALIGNMENT;
        let pack_size = pack_size.min((memory / MIN_PACKS).saturating_sub(overhead).max(MIN_PACK_SIZE));
        let buffers = Buffers::new(pack_size + overhead, memory.max(MIN_PACKS * (pack_size + overhead)));
        let packer = |kind| Mutex::new(Packer::new(kind, pack_size, buffers.clone()));
        let (data, trees) = (packer(BlobKind::Data), packer(BlobKind::Tree));
        Self { repository, lock, data, trees, uploads: Arc::default(), stop }
    }

    /// Appends a blob, which is only copied. `finisher` hashes a pack that is full.
    pub(crate) fn append(&self, kind: BlobKind, blob: &EncryptedBlob<'_>, finisher: &mut BlobEncoder) -> Result<()> {
        let packer = if kind == BlobKind::Tree { &self.trees } else { &self.data };
        let full = locked(packer).append(blob, || self.stop.is_stopped())?;
        full.map_or(Ok(()), |pack| self.store(pack, finisher))
    }

    fn store(&self, pack: FullPack, finisher: &mut BlobEncoder) -> Result<()> {
        let pack = pack.finish(&self.repository.key, finisher)?;
        self.stop.check()?;
        self.lock.check()?;
        if let Some(failure) = self.uploads().failure.take() {
            return Err(failure);
        }
        self.uploads().in_flight += 1;
        let (repository, uploads) = (self.repository.clone(), self.uploads.clone());
        self.repository.runtime.spawn(async move {
            let done = repository.store.put(&FileKind::Pack.key_of(&pack.id), pack.content).await;
            let mut now = locked(&uploads.0);
            now.in_flight -= 1;
            match done {
                Ok(()) => now.stored.push(IndexedPack { id: pack.id, blobs: pack.blobs }),
                Err(error) => now.failure = now.failure.take().or(Some(error.into())),
            }
            drop(now);
            uploads.1.notify_all();
        });
        Ok(())
    }

    /// Stores the open packs and waits for all uploads. Returns the packs, which are stored and in no index file.
    pub(crate) fn finish(self, finisher: &mut BlobEncoder) -> Result<Vec<IndexedPack>> {
        for packer in [&self.data, &self.trees] {
            let full = locked(packer).take();
            full.map_or(Ok(()), |pack| self.store(pack, finisher))?;
        }
        let mut uploads = self.uploads();
        while uploads.in_flight > 0 && !self.stop.is_stopped() {
            let waited = self.uploads.1.wait_timeout(uploads, Duration::from_millis(50));
            uploads = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(failure) = uploads.failure.take() {
            return Err(failure);
        }
        self.stop.check()?;
        Ok(std::mem::take(&mut uploads.stored))
    }

    fn uploads(&self) -> MutexGuard<'_, Uploads> {
        locked(&self.uploads.0)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
