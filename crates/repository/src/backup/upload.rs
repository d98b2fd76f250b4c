//! Uploads packs concurrently, and then the index files that refer to them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_progress::{Meter, Task};

use super::packer::FinishedPack;
use super::run::Meters;
use super::upload_limit::UploadLimit;
use crate::cancel::Cancel;
use crate::format::blob::{BlobKind, PackedBlob};
use crate::format::index::{self, IndexedPack};
use crate::lock::Lock;
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result};

/// The maximum time until stored packs are indexed, so that they need not be found by listing after a crash.
const MAX_INDEX_INTERVAL: Duration = Duration::from_mins(2);

pub(super) struct Uploads<'a> {
    repository: &'a Arc<Repository>,
    lock: &'a Arc<Lock>,
    task: Task,
    /// The meter of file bytes: those in a new pack are done when it is stored.
    bytes: Meter,
    /// The number of blobs in an index file.
    index_every: usize,
    state: Arc<(Mutex<State>, Condvar)>,
}

/// Whether packs may be stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// Not before the lock is confirmed.
    Waiting,
    Open,
    /// The lock is invalid.
    Closed,
}

struct State {
    gate: Gate,
    in_flight: usize,
    limit: UploadLimit,
    /// Stored packs that are not in the index.
    stored: Vec<IndexedPack>,
    blobs: usize,
    indexed: Instant,
    failure: Option<RepositoryError>,
}

impl<'a> Uploads<'a> {
    /// The limits are those of concurrent uploads and of blobs in an index file. `unindexed` are packs of an earlier run that are
    /// not in the index.
    pub(super) fn new(
        repository: &'a Arc<Repository>,
        lock: &'a Arc<Lock>,
        meters: &Meters,
        (limit, index_every): (UploadLimit, usize),
        unindexed: Vec<IndexedPack>,
    ) -> Self {
        let blobs = unindexed.iter().map(|pack| pack.blobs.len()).sum();
        let state = State {
            gate: Gate::Waiting,
            in_flight: 0,
            limit,
            stored: unindexed,
            blobs,
            indexed: Instant::now(),
            failure: None,
        };
        let (task, bytes) = (meters.task.clone(), meters.bytes.clone());
        Self { repository, lock, task, bytes, index_every, state: Arc::new((Mutex::new(state), Condvar::new())) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds stored packs that are not in the index, from an interrupted backup.
    pub(super) fn add_unindexed(&self, packs: Vec<IndexedPack>) {
        let mut state = self.state();
        state.blobs += packs.iter().map(|pack| pack.blobs.len()).sum::<usize>();
        state.stored.extend(packs);
    }

    /// Allows or denies uploads. Until then `submit` waits.
    pub(super) fn allow(&self, is_allowed: bool) {
        self.state().gate = if is_allowed { Gate::Open } else { Gate::Closed };
        self.state.1.notify_all();
    }

    /// Starts the upload of a pack; waits while the maximum is in flight. Returns an error after a failed upload.
    pub(super) fn submit(&self, pack: FinishedPack, cancel: &Cancel) -> Result<()> {
        self.wait_for_slot(cancel)?;
        self.lock.check()?;
        self.state().in_flight += 1;
        let (repository, state, bytes) = (self.repository.clone(), self.state.clone(), self.bytes.clone());
        let FinishedPack { id, content, blobs } = pack;
        self.repository.runtime.spawn(async move {
            let started = Instant::now();
            let done = repository.store.put(&FileKind::Pack.key_of(&id), content).await;
            let mut now = state.0.lock().unwrap_or_else(PoisonError::into_inner);
            now.in_flight -= 1;
            now.limit.record_upload(started.elapsed());
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

    /// Waits until one more upload may start.
    fn wait_for_slot(&self, cancel: &Cancel) -> Result<()> {
        self.wait_while(cancel, |state| {
            let is_full = state.in_flight >= state.limit.current();
            if is_full {
                state.limit.record_wait();
            }
            is_full
        })
    }

    /// Waits while `is_busy` and the packs may not be stored.
    fn wait_while(&self, cancel: &Cancel, mut is_busy: impl FnMut(&mut State) -> bool) -> Result<()> {
        let mut state = self.state();
        let mut waiting = None;
        loop {
            let busy = is_busy(&mut state);
            if !busy && state.gate == Gate::Open {
                break;
            }
            cancel.check()?;
            if state.gate == Gate::Closed {
                return Err(RepositoryError::Cancelled);
            }
            let (guard, _) =
                self.state.1.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if waiting.is_none() && is_busy(&mut state) {
                waiting =
                    Some(self.task.wait(format!("waiting for uploads of packs to {}", self.repository.store.name())));
            }
        }
        match state.failure.take() {
            Some(failure) => Err(failure),
            None => cancel.check(),
        }
    }

    /// Writes an index file if enough blobs are stored or the last one is old.
    pub(super) fn index_if_due(&self, cancel: &Cancel) -> Result<()> {
        let due = {
            let state = self.state();
            let is_enough = state.blobs >= self.index_every;
            let is_old = state.blobs > 0 && state.indexed.elapsed() >= MAX_INDEX_INTERVAL;
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
        for packs in split_index(&stored, self.index_every) {
            // Without the lock a prune may have removed unindexed packs: an index file would refer to missing packs.
            self.lock.confirm(cancel)?;
            let json = index::encode(packs).map_err(|cause| RepositoryError::corrupt("a new index file", cause))?;
            self.repository.wait(cancel, self.repository.save_under(self.lock, FileKind::Index, json))?;
        }
        Ok(())
    }

    /// Waits for all uploads, then writes the index.
    pub(super) fn finish(&self, cancel: &Cancel) -> Result<()> {
        self.wait_while(cancel, |state| state.in_flight > 0)?;
        self.write_index(cancel)
    }

    /// Indexes stored packs after a cancel or a failure, so that the next run can use them, if that is quick. The rest is found by
    /// listing. Returns whether all are indexed.
    pub(super) fn index_stored_packs(&self) -> bool {
        if self.lock.check().is_err() {
            return false;
        }
        let deadline = Instant::now() + Duration::from_millis(200);
        let mut state = self.state();
        if state.gate != Gate::Open {
            return state.stored.is_empty();
        }
        while state.in_flight > 0 && Instant::now() < deadline {
            let (guard, _) =
                self.state.1.wait_timeout(state, Duration::from_millis(20)).unwrap_or_else(PoisonError::into_inner);
            state = guard;
        }
        let (stored, is_complete) = (std::mem::take(&mut state.stored), state.in_flight == 0);
        drop(state);
        if stored.is_empty() {
            return is_complete;
        }
        let Ok(json) = index::encode(&stored) else { return false };
        let saving = async {
            if !self.lock.exists().await? {
                return Err(RepositoryError::Cancelled);
            }
            self.repository.save_under(self.lock, FileKind::Index, json).await
        };
        let write = async { tokio::time::timeout(Duration::from_millis(250), saving).await };
        let is_indexed = matches!(self.repository.runtime.block_on(write), Ok(Ok(_)));
        if !is_indexed {
            tracing::debug!("stored packs are not indexed; the next backup finds them by listing");
        }
        is_indexed && is_complete
    }
}

fn bytes_of_files(blobs: &[PackedBlob]) -> u64 {
    let data = blobs.iter().filter(|blob| blob.kind == BlobKind::Data);
    data.map(|blob| u64::from(blob.plain_length())).sum()
}

/// Splits packs into index files with a limited number of blobs.
fn split_index(stored: &[IndexedPack], max_blobs: usize) -> Vec<&[IndexedPack]> {
    let (mut files, mut start, mut blobs) = (Vec::new(), 0, 0);
    for (at, pack) in stored.iter().enumerate() {
        blobs += pack.blobs.len();
        if blobs >= max_blobs {
            files.push(&stored[start..=at]);
            (start, blobs) = (at + 1, 0);
        }
    }
    if start < stored.len() {
        files.push(&stored[start..]);
    }
    files
}
