//! A pool of reusable buffers with a limited total size.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{RepositoryError, Result};

/// Buffers of one size, within a budget. They are reused, because a new one costs a page fault for every 4 KiB.
#[derive(Clone)]
pub(crate) struct Buffers(Arc<Shared>);

struct Shared {
    size: usize,
    budget: usize,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Vec<u8>>,
    /// Bytes of all buffers that exist, idle or not.
    bytes: usize,
}

impl Buffers {
    /// Buffers of `size` bytes within `budget` bytes, but at least one.
    pub(crate) fn new(size: usize, budget: usize) -> Self {
        Self(Arc::new(Shared { size, budget, state: Mutex::default(), returned: Condvar::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a buffer with undefined content; waits for one. Returns an error when `stopped` returns `true`.
    pub(super) fn take(&self, stopped: impl Fn() -> bool) -> Result<Buffer> {
        let mut state = self.state();
        loop {
            if let Some(buffer) = self.next(&mut state) {
                return Ok(buffer);
            }
            if stopped() {
                return Err(RepositoryError::Cancelled);
            }
            let waited = self.0.returned.wait_timeout(state, Duration::from_millis(50));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes a buffer with undefined content, if there is one now.
    pub(super) fn try_take(&self) -> Option<Buffer> {
        self.next(&mut self.state())
    }

    fn next(&self, state: &mut State) -> Option<Buffer> {
        if let Some(bytes) = state.idle.pop() {
            return Some(self.wrap(bytes));
        }
        let is_within_budget = state.bytes == 0 || state.bytes + self.0.size <= self.0.budget;
        is_within_budget.then(|| {
            state.bytes += self.0.size;
            // Untouched zeros take no memory.
            self.wrap(vec![0; self.0.size])
        })
    }

    fn wrap(&self, bytes: Vec<u8>) -> Buffer {
        Buffer { bytes, start: 0, pool: self.clone() }
    }
}

/// A borrowed buffer, returned to its pool on drop.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// The start of the content.
    start: usize,
    pool: Buffers,
}

impl Buffer {
    /// Clears the buffer. Content that is appended starts at a multiple of `alignment` in memory, which must have been added to its
    /// size.
    pub(super) fn clear_aligned(&mut self, alignment: usize) {
        self.start = self.bytes.as_ptr().align_offset(alignment);
        self.bytes.clear();
        self.bytes.resize(self.start, 0);
    }

    /// The length of the content.
    pub(super) fn length(&self) -> usize {
        self.bytes.len() - self.start
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        {
            let mut state = self.pool.state();
            // A buffer that has grown is freed: it would exceed the budget.
            if bytes.capacity() > self.pool.0.size {
                state.bytes -= self.pool.0.size;
            } else {
                state.idle.push(bytes);
            }
        }
        self.pool.0.returned.notify_one();
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_never_exceeded_and_buffers_are_reused() {
        let buffers = Buffers::new(1000, 2500);
        let (first, second) = (buffers.take(|| true).expect("room"), buffers.take(|| true).expect("room"));
        assert_eq!(buffers.take(|| true).map(drop).expect_err("no room for a third").reason(), "Cancelled");
        drop(first);
        let mut third = buffers.take(|| true).expect("the first again");
        third.resize(5000, 0);
        drop((second, third));
        assert_eq!(buffers.state().bytes, 1000, "the buffer that grew was freed");
        let large = Buffers::new(1000, 10);
        assert!(large.take(|| true).is_ok(), "one is always allowed");
        let waiting = buffers.take(|| false).and_then(|_one| buffers.take(|| false)).map(drop);
        assert!(waiting.is_ok());
    }

    #[test]
    fn content_is_aligned() {
        let buffers = Buffers::new(10_000, 10_000);
        for _ in 0..2 {
            let mut buffer = buffers.take(|| true).expect("room");
            buffer.clear_aligned(4096);
            buffer.extend_from_slice(&[7; 5000]);
            assert_eq!((buffer.length(), buffer.as_ref()), (5000, &[7; 5000][..]));
            assert_eq!(buffer.as_ref().as_ptr().align_offset(4096), 0);
        }
        assert_eq!(buffers.state().bytes, 10_000, "it did not grow");
    }
}
