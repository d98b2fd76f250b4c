//! Storing packs, a few at a time, and the index files that name them afterwards.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_progress::{Meter, Task};

use super::packer::FinishedPack;
use super::run::Meters;
use crate::cancel::Cancel;
use crate::format::blob::{BlobKind, PackedBlob};
use crate::format::index::{self, IndexedPack};
use crate::lock::Lock;
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result};

/// An index file is written at the latest after this time: what is named need not be found again by listing after a crash.
const INDEXED_AFTER: Duration = Duration::from_mins(2);

pub(super) struct Uploads<'a> {
    repository: &'a Arc<Repository>,
    lock: &'a Arc<Lock>,
    task: Task,
    /// Bytes of files: those in a new pack are done when it is stored.
    bytes: Meter,
    /// Packs on their way at the same time.
    most: usize,
    /// Blobs that are enough for an index file.
    index_every: usize,
    state: Arc<(Mutex<State>, Condvar)>,
}

/// Whether anything may be stored yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// Not before the lock is known to be good.
    Shut,
    Open,
    /// The lock is not good.
    ShutForEver,
}

struct State {
    gate: Gate,
    under_way: usize,
    /// Stored, and named by no index file.
    stored: Vec<IndexedPack>,
    blobs: usize,
    indexed: Instant,
    failure: Option<RepositoryError>,
}

impl<'a> Uploads<'a> {
    /// So many packs at a time, and an index file for so many blobs. `adopted` are packs of an earlier run that no index file names yet.
    pub(super) fn new(
        repository: &'a Arc<Repository>,
        lock: &'a Arc<Lock>,
        meters: &Meters,
        (most, index_every): (usize, usize),
        adopted: Vec<IndexedPack>,
    ) -> Self {
        let blobs = adopted.iter().map(|pack| pack.blobs.len()).sum();
        let state =
            State { gate: Gate::Shut, under_way: 0, stored: adopted, blobs, indexed: Instant::now(), failure: None };
        let (task, bytes) = (meters.task.clone(), meters.bytes.clone());
        Self { repository, lock, task, bytes, most, index_every, state: Arc::new((Mutex::new(state), Condvar::new())) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets packs be stored from now on, or never: until then those who have some wait.
    pub(super) fn allow(&self, is_allowed: bool) {
        self.state().gate = if is_allowed { Gate::Open } else { Gate::ShutForEver };
        self.state.1.notify_all();
    }

    /// Takes a pack to store it; waits while enough are on their way. Says no more once a store failed.
    pub(super) fn submit(&self, pack: FinishedPack, cancel: &Cancel) -> Result<()> {
        self.wait_below(self.most, cancel)?;
        self.lock.check()?;
        self.state().under_way += 1;
        let (repository, state, bytes) = (self.repository.clone(), self.state.clone(), self.bytes.clone());
        let FinishedPack { id, content, blobs } = pack;
        self.repository.runtime.spawn(async move {
            let done = repository.store.put(&FileKind::Pack.key_of(&id), content).await;
            let mut now = state.0.lock().unwrap_or_else(PoisonError::into_inner);
            now.under_way -= 1;
            match done {
                Ok(()) => {
                    bytes.add(bytes_of_files(&blobs));
                    now.blobs += blobs.len();
                    now.stored.push(IndexedPack { id, blobs });
                }
                Err(error) => now.failure = now.failure.take().or(Some(error.into())),
            }
            drop(now);
            state.1.notify_all();
        });
        Ok(())
    }

    /// Waits until fewer than `limit` packs are on their way.
    fn wait_below(&self, limit: usize, cancel: &Cancel) -> Result<()> {
        let mut state = self.state();
        let mut waiting = None;
        while state.gate != Gate::Open || state.under_way >= limit {
            cancel.check()?;
            if state.gate == Gate::ShutForEver {
                return Err(RepositoryError::Cancelled);
            }
            let (guard, _) =
                self.state.1.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if waiting.is_none() && state.under_way >= limit {
                waiting = Some(self.task.wait(format!("waiting for {} to store packs", self.repository.store.name())));
            }
        }
        match state.failure.take() {
            Some(failure) => Err(failure),
            None => cancel.check(),
        }
    }

    /// Names what is stored in an index file, if there is enough of it.
    pub(super) fn index_if_due(&self, cancel: &Cancel) -> Result<()> {
        let due = {
            let state = self.state();
            let is_enough = state.blobs >= self.index_every;
            let is_old = state.blobs > 0 && state.indexed.elapsed() >= INDEXED_AFTER;
            state.gate == Gate::Open && (is_enough || is_old)
        };
        if due { self.write_index(cancel) } else { Ok(()) }
    }

    fn write_index(&self, cancel: &Cancel) -> Result<()> {
        let stored = {
            let mut state = self.state();
            state.blobs = 0;
            state.indexed = Instant::now();
            std::mem::take(&mut state.stored)
        };
        for packs in portions(&stored, self.index_every) {
            // Whoever removed the lock may have swept up packs that nothing names yet: naming them now would promise what is gone.
            self.lock.confirm(cancel)?;
            let json = index::encode(packs).map_err(|cause| RepositoryError::corrupt("a new index file", cause))?;
            self.repository.wait(cancel, self.repository.save_under(self.lock, FileKind::Index, json))?;
        }
        Ok(())
    }

    /// Waits for all packs, then names them.
    pub(super) fn finish(&self, cancel: &Cancel) -> Result<()> {
        self.wait_below(1, cancel)?;
        self.write_index(cancel)
    }

    /// After a cancel or a failure: names what is stored, so that the next run need not do it again, as far as that
    /// takes no time. What is missed is found by listing.
    pub(super) fn keep_what_is_stored(&self) {
        if self.lock.check().is_err() {
            return;
        }
        let deadline = Instant::now() + Duration::from_millis(200);
        let mut state = self.state();
        if state.gate != Gate::Open {
            return;
        }
        while state.under_way > 0 && Instant::now() < deadline {
            let (guard, _) =
                self.state.1.wait_timeout(state, Duration::from_millis(20)).unwrap_or_else(PoisonError::into_inner);
            state = guard;
        }
        let stored = std::mem::take(&mut state.stored);
        drop(state);
        let Ok(json) = index::encode(&stored) else { return };
        if stored.is_empty() {
            return;
        }
        let saving = async {
            if !self.lock.is_there().await? {
                return Err(RepositoryError::Cancelled);
            }
            self.repository.save_under(self.lock, FileKind::Index, json).await
        };
        let write = async { tokio::time::timeout(Duration::from_millis(250), saving).await };
        if !matches!(self.repository.runtime.block_on(write), Ok(Ok(_))) {
            tracing::debug!(
                "stored packs are not in the index yet; if they stay so, the next run finds them by listing"
            );
        }
    }
}

fn bytes_of_files(blobs: &[PackedBlob]) -> u64 {
    let data = blobs.iter().filter(|blob| blob.kind == BlobKind::Data);
    data.map(|blob| u64::from(blob.plain_length())).sum()
}

/// Index files of a bounded size, whole packs each.
fn portions(stored: &[IndexedPack], enough: usize) -> Vec<&[IndexedPack]> {
    let (mut portions, mut start, mut blobs) = (Vec::new(), 0, 0);
    for (at, pack) in stored.iter().enumerate() {
        blobs += pack.blobs.len();
        if blobs >= enough {
            portions.push(&stored[start..=at]);
            (start, blobs) = (at + 1, 0);
        }
    }
    if start < stored.len() {
        portions.push(&stored[start..]);
    }
    portions
}
