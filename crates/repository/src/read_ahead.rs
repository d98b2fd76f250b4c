//! Reading ahead: a few ranges are on their way while the workers decode earlier ones, within a budget of bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::plan::PackRange;
use crate::blob_index::BlobIndex;
use crate::cancel::Cancel;
use crate::repository::Repository;
use crate::{RepositoryError, Result};

/// Bytes that may be on their way or waiting for a worker.
const BUDGET: u64 = 32 * 1024 * 1024;

/// A range that has arrived, or why it has not.
pub(super) struct Fetched {
    pub range: PackRange,
    pub content: Result<Bytes>,
}

#[derive(Default)]
struct State {
    arrived: VecDeque<Fetched>,
    spent: u64,
    under_way: usize,
    /// No more ranges will be asked for.
    closed: bool,
}

/// The queue between the store and the workers.
#[derive(Clone, Default)]
pub(super) struct Fetcher(Arc<(Mutex<State>, Condvar)>);

impl Fetcher {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.0.1.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Asks for all ranges in turn, no faster than the budget allows.
    pub(super) fn fetch_all(
        &self,
        repository: &Arc<Repository>,
        index: &BlobIndex,
        ranges: Vec<PackRange>,
        stopped: impl Fn() -> bool,
    ) {
        for range in ranges {
            let mut state = self.state();
            while state.spent > 0 && state.spent + range.size() > BUDGET && !stopped() {
                state = self.wait(state);
            }
            if stopped() {
                break;
            }
            state.spent += range.size();
            state.under_way += 1;
            drop(state);
            self.fetch(repository, index.pack(range.pack), range);
        }
        self.state().closed = true;
        self.0.1.notify_all();
    }

    fn fetch(&self, repository: &Arc<Repository>, pack: crate::Id, range: PackRange) {
        let (fetcher, repository) = (self.clone(), repository.clone());
        let runtime = repository.runtime.clone();
        runtime.spawn(async move {
            let content = repository.read_pack_range(pack, range.bytes.clone()).await;
            let mut state = fetcher.state();
            state.under_way -= 1;
            state.arrived.push_back(Fetched { range, content });
            drop(state);
            fetcher.0.1.notify_all();
        });
    }

    /// The next range that arrived; nothing when all are done.
    pub(super) fn next(&self, cancel: &Cancel) -> Result<Option<Fetched>> {
        let mut state = self.state();
        loop {
            if let Some(fetched) = state.arrived.pop_front() {
                return Ok(Some(fetched));
            }
            if cancel.is_cancelled() {
                return Err(RepositoryError::Cancelled);
            }
            if state.closed && state.under_way == 0 {
                return Ok(None);
            }
            state = self.wait(state);
        }
    }

    /// A range's bytes are no longer held.
    pub(super) fn release(&self, size: u64) {
        self.state().spent -= size;
        self.0.1.notify_all();
    }
}
