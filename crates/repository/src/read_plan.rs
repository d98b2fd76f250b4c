//! The division of memory when packs are read: between threads and packs that are fetched ahead.

const MIB: usize = 1024 * 1024;
/// A thread of a restore: a blob of 8 MiB in three forms, or two of half that size.
const RESTORE_WORKER_MEMORY: usize = 24 * MIB;
/// A thread of a check: a pack and a blob in two forms.
const CHECK_READER_MEMORY: usize = 41 * MIB;
/// Four ranges, or a pack: with less, threads would wait for a distant store most of the time.
const MIN_READ_AHEAD: usize = 16 * MIB;

/// The memory plan of a restore or a check. No quantity falls as processors or memory rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadPlan {
    /// The number of threads.
    pub workers: usize,
    /// The maximum number of bytes that are being fetched, waiting or being decoded.
    pub read_ahead: u64,
}

impl ReadPlan {
    /// Divides `memory` bytes of a restore. 0 `requested` threads mean two for each processor: one decodes while another waits for
    /// the disk.
    pub(crate) fn restore(requested: usize, memory: usize, processors: usize) -> Self {
        let wanted = if requested > 0 { requested } else { 2 * processors };
        Self::new(wanted, memory / 5 * 3 / RESTORE_WORKER_MEMORY, memory)
    }

    /// Divides `memory` bytes of a check. At least two threads, so that one can work while the other waits for the store.
    pub(crate) fn check(memory: usize, processors: usize) -> Self {
        Self::new(processors.max(2), memory / 4 * 3 / CHECK_READER_MEMORY, memory)
    }

    fn new(wanted: usize, affordable: usize, memory: usize) -> Self {
        let read_ahead = (memory / 5 * 2).max(MIN_READ_AHEAD);
        Self { workers: wanted.min(affordable).max(1), read_ahead: read_ahead as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryBudget, MemoryLimit};

    fn memory(limit: Option<u64>, processors: usize) -> usize {
        MemoryBudget::derive(MemoryLimit { bytes: limit, operations: 1 }, None, processors).for_buffers(0)
    }

    fn plans(limit: Option<u64>, processors: usize) -> [ReadPlan; 2] {
        let memory = memory(limit, processors);
        [ReadPlan::restore(0, memory, processors), ReadPlan::check(memory, processors)]
    }

    #[test]
    fn machines_of_1_to_64_processors_have_these_plans() {
        let table = [1, 2, 3, 4, 8, 16, 32, 64].map(|processors| {
            let [restore, check] = plans(None, processors);
            (processors, restore.workers, check.workers, restore.read_ahead / MIB as u64)
        });
        assert_eq!(
            table,
            [
                (1, 2, 2, 65),
                (2, 4, 2, 65),
                (3, 5, 3, 80),
                (4, 5, 4, 95),
                (8, 9, 7, 156),
                (16, 17, 12, 278),
                (32, 32, 23, 522),
                (64, 46, 34, 751),
            ]
        );
    }

    #[test]
    fn no_quantity_falls_as_processors_or_memory_rise() {
        let limits = std::iter::once(None).chain((0..4000).step_by(16).map(|megabytes| Some(megabytes * 1_000_000)));
        for (limit, processors) in limits.flat_map(|limit| (1..64).map(move |processors| (limit, processors))) {
            let plans_now = plans(limit, processors);
            for more in [plans(limit, processors + 1), plans(limit.map(|bytes| bytes + 16_000_000), processors)] {
                for (now, more) in plans_now.iter().zip(more) {
                    assert!(now.workers <= more.workers && now.read_ahead <= more.read_ahead, "{now:?} {more:?}");
                }
            }
        }
    }

    #[test]
    fn every_plan_fits_into_its_memory() {
        for megabytes in (150..3000).step_by(16) {
            let memory = memory(Some(megabytes * 1_000_000), 64);
            let restore = ReadPlan::restore(0, memory, 64);
            let ahead = usize::try_from(restore.read_ahead).expect("small");
            assert!(restore.workers * RESTORE_WORKER_MEMORY + ahead <= memory, "{restore:?}");
            // A directory's packs are read by the threads themselves.
            assert!(ReadPlan::check(memory, 64).workers * CHECK_READER_MEMORY <= memory);
        }
    }
}
