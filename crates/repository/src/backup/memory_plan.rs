//! How the memory of one backup is divided: the more threads, the fewer packs.

use plimsoll_store::ALIGNMENT;

use super::options::BackupOptions;
use super::packer::SLACK;
use crate::format::chunker::LONGEST;

const MIB: usize = 1024 * 1024;
/// Buffers of one backup may hold this much. With the program itself and the trees it reads that stays below 200 MB; the
/// index comes on top.
const ALL: usize = 163 * MIB;
/// What a thread needs to compress and verify.
const SCRATCH: usize = 14 * MIB;
/// More threads than these would leave no room for packs.
const MOST_WORKERS: usize = 3;
/// Three of these and two threads just fit; with a thread more packs are smaller.
const LARGEST_PACK: usize = 32 * MIB;
const LARGEST_PACK_OF_MANY: usize = 24 * MIB;

/// The division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub workers: usize,
    pub pack_size: usize,
    /// Packs of data that are filled at the same time.
    pub open_packs: usize,
    /// Packs that are being stored at the same time.
    pub uploads: usize,
}

impl Memory {
    pub(super) fn plan(options: &BackupOptions) -> Self {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let wanted = if options.workers > 0 { options.workers } else { processors };
        let workers = wanted.clamp(1, MOST_WORKERS);
        let pack_size = options.pack_size.min(if workers > 2 { LARGEST_PACK_OF_MANY } else { LARGEST_PACK });
        let left = ALL.saturating_sub(workers * SCRATCH + chunk_budget(workers));
        // One is for trees, at least one for data, and at least one on its way.
        let packs = (left / pack_buffer(pack_size)).clamp(3, 7);
        let open_packs = if workers > 1 && packs > 3 { 2 } else { 1 };
        Self { workers, pack_size, open_packs, uploads: packs - open_packs - 1 }
    }

    /// Bytes for chunks: for each thread one that it reads, and one that waits or is handed from thread to thread.
    pub(super) fn chunk_budget(&self) -> usize {
        chunk_budget(self.workers)
    }

    /// Bytes of one pack, header included, and what comes before it for its alignment.
    pub(super) fn pack_buffer(&self) -> usize {
        pack_buffer(self.pack_size)
    }

    /// Bytes for packs, whether being filled or on their way.
    pub(super) fn pack_budget(&self) -> usize {
        (self.open_packs + 1 + self.uploads) * self.pack_buffer()
    }
}

fn pack_buffer(pack_size: usize) -> usize {
    pack_size + SLACK + ALIGNMENT
}

fn chunk_budget(workers: usize) -> usize {
    2 * workers * LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::Target;

    #[test]
    fn whatever_is_asked_for_fits() {
        for workers in 1..=8 {
            for pack_size in [1, 4 * MIB, 16 * MIB, 32 * MIB, 128 * MIB] {
                let options = BackupOptions { pack_size, workers, ..BackupOptions::new(Target::Paths(Vec::new())) };
                let memory = Memory::plan(&options);
                let all = memory.workers * SCRATCH + memory.chunk_budget() + memory.pack_budget();
                let allowed = if memory.pack_size > 16 * MIB { ALL + 28 * MIB } else { ALL };
                assert!(all <= allowed, "{memory:?}: {} MiB", all / MIB);
                assert!(memory.uploads >= 1 && memory.open_packs >= 1, "{memory:?}");
            }
        }
    }
}
