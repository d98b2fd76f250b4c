//! Which worker does what: each has a stretch of its own, so that two of them seldom write to the same file or the same
//! directory, where they would wait for each other. Who is done early takes half of what another has left.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

pub(super) struct Shares(Mutex<Vec<Range<usize>>>);

impl Shares {
    /// Divides `count` pieces of work.
    pub(super) fn new(count: usize, workers: usize) -> Self {
        let share = |worker| count * worker / workers..count * (worker + 1) / workers;
        Self(Mutex::new((0..workers).map(share).collect()))
    }

    /// The next piece for this worker; nothing when all are done or being done.
    pub(super) fn next(&self, worker: usize) -> Option<usize> {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shares[worker].is_empty() {
            let longest = shares.iter_mut().max_by_key(ExactSizeIterator::len)?;
            let taken = longest.end - longest.len().div_ceil(2)..longest.end;
            longest.end = taken.start;
            shares[worker] = taken;
        }
        shares[worker].next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_done_once_whoever_is_quick() {
        for (count, workers) in [(0, 1), (1, 3), (2, 3), (7, 2), (100, 4)] {
            for quick in 0..workers {
                let shares = Shares::new(count, workers);
                // One takes a piece of its own share, then another does all the rest.
                let mut done: Vec<_> = shares.next(workers - 1).into_iter().collect();
                done.extend(std::iter::from_fn(|| shares.next(quick)));
                done.sort_unstable();
                assert_eq!(done, (0..count).collect::<Vec<_>>(), "{count} pieces, {workers} workers, {quick} is quick");
                assert_eq!((0..workers).find_map(|worker| shares.next(worker)), None);
            }
        }
    }
}
