//! Buffers that go round: there are only so many bytes of them, and whoever wants one more waits until another is done.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{RepositoryError, Result};

/// Buffers of one size, as many as a budget of bytes has room for. A fresh one costs a page fault for every 4 KiB, so
/// they are kept.
#[derive(Clone)]
pub(super) struct Buffers(Arc<Shared>);

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
    pub(super) fn new(size: usize, budget: usize) -> Self {
        Self(Arc::new(Shared { size, budget, state: Mutex::default(), returned: Condvar::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer with anything in it; waits for one. An error once `stopped` says so.
    pub(super) fn take(&self, stopped: impl Fn() -> bool) -> Result<Buffer> {
        let mut state = self.state();
        loop {
            if let Some(bytes) = state.idle.pop() {
                return Ok(self.lend(bytes));
            }
            if state.bytes == 0 || state.bytes + self.0.size <= self.0.budget {
                state.bytes += self.0.size;
                // Zeros that nobody has touched take no memory.
                return Ok(self.lend(vec![0; self.0.size]));
            }
            if stopped() {
                return Err(RepositoryError::Cancelled);
            }
            let waited = self.0.returned.wait_timeout(state, Duration::from_millis(50));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lend(&self, bytes: Vec<u8>) -> Buffer {
        Buffer { bytes, start: 0, home: self.clone() }
    }
}

/// A buffer on loan: it returns where it came from when it is dropped, and with it its share of the budget.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    /// Where the content begins.
    start: usize,
    home: Buffers,
}

impl Buffer {
    /// Empties it. What is appended from now on begins at a multiple of `alignment` in memory, which must have been added to
    /// its size.
    pub(super) fn clear_aligned(&mut self, alignment: usize) {
        self.start = self.bytes.as_ptr().align_offset(alignment);
        self.bytes.clear();
        self.bytes.resize(self.start, 0);
    }

    /// Bytes of content.
    pub(super) fn length(&self) -> usize {
        self.bytes.len() - self.start
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        {
            let mut state = self.home.state();
            // One that had to grow is not kept: it would take more than its share from then on.
            if bytes.capacity() > self.home.0.size {
                state.bytes -= self.home.0.size;
            } else {
                state.idle.push(bytes);
            }
        }
        self.home.0.returned.notify_all();
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
    fn the_budget_is_never_exceeded_and_a_returned_buffer_is_lent_again() {
        let buffers = Buffers::new(1000, 2500);
        let (first, second) = (buffers.take(|| true).expect("room"), buffers.take(|| true).expect("room"));
        assert_eq!(buffers.take(|| true).map(drop).expect_err("no room for a third").reason(), "Cancelled");
        drop(first);
        let mut third = buffers.take(|| true).expect("the first again");
        third.resize(5000, 0);
        drop((second, third));
        assert_eq!(buffers.state().bytes, 1000, "the one that grew is gone");
        let large = Buffers::new(1000, 10);
        assert!(large.take(|| true).is_ok(), "one is always allowed");
        let waiting = buffers.take(|| false).and_then(|_one| buffers.take(|| false)).map(drop);
        assert!(waiting.is_ok());
    }

    #[test]
    fn content_begins_where_it_is_asked_to() {
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
