//! The queue of the workers: batches of files, and chunks of large files for idle workers.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::buffers::Buffer;
use super::directory::Directory;
use super::source::Source;
use super::worker::OpenFile;

/// A file to read.
pub(super) struct FileJob {
    /// The source directory that it is opened in.
    pub source: Arc<Source>,
    pub path: PathBuf,
    pub name: Vec<u8>,
    /// Its size during the walk.
    pub size: u64,
    pub directory: Arc<Directory>,
    /// Whether the parent snapshot has a file at this path.
    pub is_in_parent: bool,
}

/// A chunk that another worker has read.
pub(super) struct ChunkJob {
    pub file: Arc<OpenFile>,
    pub position: usize,
    pub buffer: Buffer,
    pub length: usize,
}

impl ChunkJob {
    pub(super) fn content(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

pub(super) enum Work {
    Files(Vec<FileJob>),
    Chunk(ChunkJob),
}

#[derive(Default)]
struct State {
    files: VecDeque<Vec<FileJob>>,
    chunks: VecDeque<ChunkJob>,
    /// The number of workers that are working and may add work.
    active: usize,
    /// The number of workers that wait for work.
    idle: usize,
    closed: bool,
    /// Whether the walk has waited for the workers.
    was_full: bool,
}

/// The queue between the walkers and the workers. Each event wakes only threads that can go on.
pub(super) struct WorkQueue {
    state: Mutex<State>,
    /// Workers wait for work.
    added: Condvar,
    /// Walkers wait for room.
    taken: Condvar,
    /// The scan waits for the first wait of a walker.
    filled: Condvar,
    limit: usize,
}

impl WorkQueue {
    pub(super) fn new(workers: usize) -> Self {
        let (added, taken, filled) = Default::default();
        Self { state: Mutex::default(), added, taken, filled, limit: workers * 2 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds files; waits while the queue is full, until `stopped` returns `true`.
    pub(super) fn push_files(&self, batch: Vec<FileJob>, stopped: impl Fn() -> bool) {
        let mut state = self.state();
        while state.files.len() >= self.limit {
            if stopped() {
                return;
            }
            if !std::mem::replace(&mut state.was_full, true) {
                self.filled.notify_all();
            }
            let (guard, _) =
                self.taken.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner);
            state = guard;
        }
        state.files.push_back(batch);
        drop(state);
        self.added.notify_one();
    }

    /// Waits until the queue was full or is closed, or `stopped` returns `true`.
    pub(super) fn wait_until_full(&self, stopped: impl Fn() -> bool) {
        let mut state = self.state();
        while !state.was_full && !state.closed && !stopped() {
            let (guard, _) =
                self.filled.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner);
            state = guard;
        }
    }

    /// Passes a chunk to an idle worker; returns it if there is none.
    pub(super) fn offer_chunk(&self, chunk: ChunkJob) -> Option<ChunkJob> {
        let mut state = self.state();
        if state.idle <= state.chunks.len() {
            return Some(chunk);
        }
        state.chunks.push_back(chunk);
        drop(state);
        self.added.notify_one();
        None
    }

    /// Closes the queue: no more files will be added.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.added.notify_all();
        self.filled.notify_all();
    }

    /// The next work; `None` when the queue is closed and all workers are done, or `stopped` returns `true`.
    pub(super) fn take(&self, stopped: impl Fn() -> bool) -> Option<Work> {
        let mut state = self.state();
        loop {
            if stopped() {
                return None;
            }
            if let Some(work) = state.next() {
                state.active += 1;
                drop(state);
                if matches!(work, Work::Files(_)) {
                    self.taken.notify_one();
                }
                return Some(work);
            }
            if state.closed && state.active == 0 {
                return None;
            }
            state.idle += 1;
            let (guard, _) =
                self.added.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
        }
    }

    /// A worker has finished its work. After the last one all others may end.
    pub(super) fn done(&self) {
        let mut state = self.state();
        state.active -= 1;
        let is_last = state.closed && state.active == 0;
        drop(state);
        if is_last {
            self.added.notify_all();
        }
    }
}

impl State {
    fn next(&mut self) -> Option<Work> {
        let chunk = self.chunks.pop_front().map(Work::Chunk);
        chunk.or_else(|| self.files.pop_front().map(Work::Files))
    }
}
