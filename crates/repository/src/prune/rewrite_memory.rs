//! The division of memory when packs are rewritten.

const MIB: usize = 1024 * 1024;
/// A blob of 8 MiB in two forms.
const WORKER_MEMORY: usize = 17 * MIB;
/// Two ranges of a pack.
const MIN_READ_AHEAD: usize = 8 * MIB;

/// The memory plan of a rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RewriteMemory {
    /// The number of threads that verify blobs.
    pub workers: usize,
    /// The maximum number of bytes that are being fetched, waiting or being verified.
    pub read_ahead: u64,
    /// The memory of packs, open or being stored.
    pub packs: usize,
}

impl RewriteMemory {
    /// Divides `memory` bytes: a quarter for threads, a quarter to read ahead, half for packs.
    pub(super) fn plan(memory: usize, processors: usize) -> Self {
        let read_ahead = (memory / 4).max(MIN_READ_AHEAD) as u64;
        Self { workers: (memory / 4 / WORKER_MEMORY).clamp(1, processors.max(1)), read_ahead, packs: memory / 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_fits_into_its_memory_and_has_a_worker() {
        for megabytes in 72..2000 {
            let plan = RewriteMemory::plan(megabytes * MIB, 64);
            let ahead = usize::try_from(plan.read_ahead).expect("small");
            assert!(
                plan.workers >= 1 && plan.workers * WORKER_MEMORY + ahead + plan.packs <= megabytes * MIB,
                "{plan:?}"
            );
        }
        assert_eq!(RewriteMemory::plan(0, 2).workers, 1);
        assert_eq!(RewriteMemory::plan(172 * MIB, 2).workers, 2);
    }
}
