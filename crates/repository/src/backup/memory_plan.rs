//! The division of a backup's memory: the more threads, the fewer packs.

use plimsoll_store::ALIGNMENT;

use super::options::BackupOptions;
use super::packer::SLACK;
use crate::format::chunker::MAX_CHUNK_SIZE;

const MIB: usize = 1024 * 1024;
/// The limit of all buffers of a backup. With the program and the trees it reads that stays below 200 MB; the index is extra.
const TOTAL_LIMIT: usize = 163 * MIB;
/// The memory of a thread to compress and verify.
const WORKER_MEMORY: usize = 14 * MIB;
/// More threads would leave no memory for packs.
const MAX_WORKERS: usize = 3;
/// Three packs of this size and two threads just fit; with three threads packs are smaller.
const MAX_PACK_SIZE: usize = 32 * MIB;
const MAX_PACK_SIZE_WITH_3_WORKERS: usize = 24 * MIB;

/// The memory plan of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryPlan {
    pub workers: usize,
    pub pack_size: usize,
    /// The number of open data packs.
    pub open_packs: usize,
    /// The number of concurrent uploads.
    pub uploads: usize,
}

impl MemoryPlan {
    pub(super) fn plan(options: &BackupOptions) -> Self {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let requested = if options.workers > 0 { options.workers } else { processors };
        let workers = requested.clamp(1, MAX_WORKERS);
        let pack_size = options.pack_size.min(if workers > 2 { MAX_PACK_SIZE_WITH_3_WORKERS } else { MAX_PACK_SIZE });
        let remaining = TOTAL_LIMIT.saturating_sub(workers * WORKER_MEMORY + chunk_budget(workers));
        // One for trees, at least one for data, and at least one upload.
        let packs = (remaining / pack_buffer(pack_size)).clamp(3, 7);
        let open_packs = if workers > 1 && packs > 3 { 2 } else { 1 };
        Self { workers, pack_size, open_packs, uploads: packs - open_packs - 1 }
    }

    /// The memory for chunks: for each thread one being read, and one that waits or is passed between threads.
    pub(super) fn chunk_budget(&self) -> usize {
        chunk_budget(self.workers)
    }

    /// The memory of a pack with its header and alignment.
    pub(super) fn pack_buffer(&self) -> usize {
        pack_buffer(self.pack_size)
    }

    /// The memory for packs, open or being uploaded.
    pub(super) fn pack_budget(&self) -> usize {
        (self.open_packs + 1 + self.uploads) * self.pack_buffer()
    }
}

fn pack_buffer(pack_size: usize) -> usize {
    pack_size + SLACK + ALIGNMENT
}

fn chunk_budget(workers: usize) -> usize {
    2 * workers * MAX_CHUNK_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::Target;

    #[test]
    fn every_plan_fits_into_the_limit() {
        for workers in 1..=8 {
            for pack_size in [1, 4 * MIB, 16 * MIB, 32 * MIB, 128 * MIB] {
                let options = BackupOptions { pack_size, workers, ..BackupOptions::new(Target::Paths(Vec::new())) };
                let memory = MemoryPlan::plan(&options);
                let all = memory.workers * WORKER_MEMORY + memory.chunk_budget() + memory.pack_budget();
                let allowed = if memory.pack_size > 16 * MIB { TOTAL_LIMIT + 28 * MIB } else { TOTAL_LIMIT };
                assert!(all <= allowed, "{memory:?}: {} MiB", all / MIB);
                assert!(memory.uploads >= 1 && memory.open_packs >= 1, "{memory:?}");
            }
        }
    }
}
