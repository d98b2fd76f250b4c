//! The distribution of work: each worker has a range of its own, so that workers rarely write to the same file or directory, where
//! they would wait for each other. An idle worker takes half of the largest remaining range.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

pub(super) struct WorkShares(Mutex<Vec<Range<usize>>>);

impl WorkShares {
    /// Divides `count` items.
    pub(super) fn new(count: usize, workers: usize) -> Self {
        let share = |worker| count * worker / workers..count * (worker + 1) / workers;
        Self(Mutex::new((0..workers).map(share).collect()))
    }

    /// The next item of this worker; `None` when all are taken.
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
    fn every_item_is_taken_once() {
        for (count, workers) in [(0, 1), (1, 3), (2, 3), (7, 2), (100, 4)] {
            for quick in 0..workers {
                let shares = WorkShares::new(count, workers);
                // One worker takes an item, then another takes all the rest.
                let mut done: Vec<_> = shares.next(workers - 1).into_iter().collect();
                done.extend(std::iter::from_fn(|| shares.next(quick)));
                done.sort_unstable();
                assert_eq!(done, (0..count).collect::<Vec<_>>(), "{count} pieces, {workers} workers, {quick} is quick");
                assert_eq!((0..workers).find_map(|worker| shares.next(worker)), None);
            }
        }
    }
}
