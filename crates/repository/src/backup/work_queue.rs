//! Work for the workers: batches of files, and chunks of large files that an idle worker takes over.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::buffers::Buffer;
use super::directory::Directory;
use super::files::OpenFile;
use super::source::Source;

/// A file to read.
pub(super) struct FileJob {
    /// What it was found in, and is opened in.
    pub source: Arc<Source>,
    pub path: PathBuf,
    pub name: Vec<u8>,
    /// Its size when it was found.
    pub size: u64,
    pub directory: Arc<Directory>,
    /// Whether the parent snapshot has a file at this path.
    pub known: bool,
}

/// A chunk somebody else has read.
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
    /// Workers that hold work, and so may still make more of it.
    active: usize,
    /// Workers that wait for work.
    idle: usize,
    closed: bool,
    /// Whether the walk ever had to wait for the workers.
    was_full: bool,
}

/// The queue between the walker and the workers.
pub(super) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
}

impl Pool {
    pub(super) fn new(workers: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), limit: workers * 2 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds files; waits while there are enough. Gives up when `stopped` says so.
    pub(super) fn push_files(&self, batch: Vec<FileJob>, stopped: impl Fn() -> bool) {
        let mut state = self.state();
        while state.files.len() >= self.limit {
            if stopped() {
                return;
            }
            state.was_full = true;
            let (guard, _) =
                self.changed.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner);
            state = guard;
        }
        state.files.push_back(batch);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until files have had to wait, or none will come any more, or `stopped` says so.
    pub(super) fn wait_until_full(&self, stopped: impl Fn() -> bool) {
        let mut state = self.state();
        while !state.was_full && !state.closed && !stopped() {
            let (guard, _) =
                self.changed.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner);
            state = guard;
        }
    }

    /// Gives a chunk to a worker that has nothing to do; gives it back if there is none.
    pub(super) fn offer_chunk(&self, chunk: ChunkJob) -> Option<ChunkJob> {
        let mut state = self.state();
        if state.idle <= state.chunks.len() {
            return Some(chunk);
        }
        state.chunks.push_back(chunk);
        drop(state);
        self.changed.notify_all();
        None
    }

    /// No more files will come.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// The next piece of work; nothing once there can be none any more, or `stopped` says so.
    pub(super) fn take(&self, stopped: impl Fn() -> bool) -> Option<Work> {
        let mut state = self.state();
        loop {
            if stopped() {
                return None;
            }
            if let Some(work) = state.next() {
                state.active += 1;
                drop(state);
                self.changed.notify_all();
                return Some(work);
            }
            if state.closed && state.active == 0 {
                self.changed.notify_all();
                return None;
            }
            state.idle += 1;
            let (guard, _) =
                self.changed.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
        }
    }

    /// A worker is done with what it took.
    pub(super) fn done(&self) {
        self.state().active -= 1;
        self.changed.notify_all();
    }
}

impl State {
    fn next(&mut self) -> Option<Work> {
        let chunk = self.chunks.pop_front().map(Work::Chunk);
        chunk.or_else(|| self.files.pop_front().map(Work::Files))
    }
}
