//! The division of a backup's memory between threads and packs.

use plimsoll_store::ALIGNMENT;

use super::options::BackupOptions;
use super::packer::SLACK;
use super::upload_limit::UploadLimit;
use crate::format::chunker::MAX_CHUNK_SIZE;

const MIB: usize = 1024 * 1024;
/// The memory to compress and verify a blob.
const ENCODER_MEMORY: usize = 14 * MIB;
/// Chunks for each worker: one that is read, and one that waits for the next or is passed between threads.
const CHUNKS_PER_WORKER: usize = 2;
/// A distant store takes one pack in about a second on each connection, however fast the processors are.
const MIN_UPLOADS: usize = 3;
/// Packs are made smaller, down to this, where there is no room for the minimum of uploads.
const MIN_PACK_SIZE: usize = 4 * MIB;
/// The number of workers that share an open pack. They lock it only to copy a blob into it.
const WORKERS_PER_OPEN_PACK: usize = 4;
/// A walker keeps about this many workers busy.
const WORKERS_PER_WALKER: usize = 2;
/// More than one, because a stat may be slow on a cold or remote file system.
const MIN_WALKERS: usize = 2;

/// The memory plan of a backup. No quantity falls as processors or memory rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryPlan {
    /// The number of threads that read and hash files.
    pub readers: usize,
    /// The number of blobs that are compressed, encrypted and verified at the same time.
    pub workers: usize,
    pub walkers: usize,
    pub pack_size: usize,
    /// The number of open data packs.
    pub open_packs: usize,
    /// The number of concurrent uploads at the start.
    pub uploads: usize,
    /// The number of concurrent uploads if the store takes more.
    pub max_uploads: usize,
}

impl MemoryPlan {
    /// Divides `memory` bytes of buffers.
    pub(super) fn plan(options: &BackupOptions, memory: usize, processors: usize) -> Self {
        let pack_size = pack_size(options.pack_size, memory);
        let affordable = affordable_workers(memory, pack_size);
        let requested = if options.workers > 0 { options.workers } else { processors };
        let default_readers = requested.clamp(1, affordable);
        let readers = if options.readers > 0 { options.readers } else { default_readers };
        let readers = readers.clamp(1, CHUNKS_PER_WORKER * affordable);
        let workers = default_readers.min(readers);
        let walkers = if options.walkers > 0 { options.walkers } else { MIN_WALKERS.max(workers / WORKERS_PER_WALKER) };
        Self {
            readers,
            workers,
            walkers,
            pack_size,
            open_packs: open_packs(workers),
            uploads: uploads(workers),
            max_uploads: uploads(affordable),
        }
    }

    /// The number of concurrent uploads and its growth.
    pub(super) fn upload_limit(&self) -> UploadLimit {
        UploadLimit::new(self.uploads, self.max_uploads)
    }

    /// The memory for chunks of files.
    pub(super) fn chunk_budget(&self) -> usize {
        self.readers.max(CHUNKS_PER_WORKER * self.workers) * MAX_CHUNK_SIZE
    }

    /// The memory of a pack with its header and alignment.
    pub(super) fn pack_buffer(&self) -> usize {
        pack_buffer(self.pack_size)
    }

    /// The memory for packs, open or being uploaded.
    pub(super) fn pack_budget(&self) -> usize {
        (self.open_packs + 1 + self.max_uploads) * self.pack_buffer()
    }
}

/// The largest pack of which the minimum fits: one for data, one for trees, and the uploads.
fn pack_size(requested: usize, memory: usize) -> usize {
    let room = memory.saturating_sub(worker_memory()) / packs(1);
    requested.min(room.saturating_sub(pack_buffer(0)).max(MIN_PACK_SIZE))
}

/// The number of workers that the memory suffices for, at least one.
fn affordable_workers(memory: usize, pack_size: usize) -> usize {
    let cost = |workers: usize| workers * worker_memory() + packs(workers) * pack_buffer(pack_size);
    let most = memory / worker_memory();
    (2..=most).take_while(|workers| cost(*workers) <= memory).last().unwrap_or(1)
}

fn worker_memory() -> usize {
    ENCODER_MEMORY + CHUNKS_PER_WORKER * MAX_CHUNK_SIZE
}

fn uploads(workers: usize) -> usize {
    workers.max(MIN_UPLOADS)
}

fn open_packs(workers: usize) -> usize {
    (workers / WORKERS_PER_OPEN_PACK).max(1)
}

/// The packs in memory: open ones, the one for trees, and those that are uploaded.
fn packs(workers: usize) -> usize {
    open_packs(workers) + 1 + uploads(workers)
}

fn pack_buffer(pack_size: usize) -> usize {
    pack_size + SLACK + ALIGNMENT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::Target;
    use crate::memory::{MemoryBudget, MemoryLimit};

    const MB: u64 = 1_000_000;
    /// What every plan takes, however little memory there is.
    const MIN_MEMORY: usize = 60 * MIB;

    fn options() -> BackupOptions {
        BackupOptions::new(Target::Paths(Vec::new()))
    }

    fn memory(limit: Option<u64>, processors: usize) -> usize {
        MemoryBudget::derive(MemoryLimit { bytes: limit, operations: 1 }, None, processors).for_buffers(0)
    }

    fn default_plan(processors: usize) -> MemoryPlan {
        MemoryPlan::plan(&options(), memory(None, processors), processors)
    }

    fn quantities(plan: &MemoryPlan) -> [usize; 7] {
        let MemoryPlan { readers, workers, walkers, pack_size, open_packs, uploads, max_uploads } = *plan;
        [readers, workers, walkers, pack_size, open_packs, uploads, max_uploads]
    }

    fn require_no_decrease(less: &MemoryPlan, more: &MemoryPlan) {
        let mut pairs = quantities(less).into_iter().zip(quantities(more));
        assert!(pairs.all(|(less, more)| less <= more), "{less:?}\n{more:?}");
    }

    #[test]
    fn machines_of_1_to_64_processors_have_these_plans() {
        let table = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64].map(|processors| {
            let plan = default_plan(processors);
            (processors, plan.workers, plan.walkers, plan.open_packs, plan.uploads)
        });
        assert_eq!(
            table,
            [
                (1, 1, 2, 1, 3),
                (2, 2, 2, 1, 3),
                (3, 3, 2, 1, 3),
                (4, 4, 2, 1, 4),
                (6, 5, 2, 1, 5),
                (8, 7, 3, 1, 7),
                (12, 10, 5, 2, 10),
                (16, 13, 6, 3, 13),
                (24, 19, 9, 4, 19),
                (32, 25, 12, 6, 25),
                (48, 36, 18, 9, 36),
                (64, 36, 18, 9, 36),
            ]
        );
    }

    #[test]
    fn no_quantity_falls_as_processors_or_memory_rise() {
        for processors in 1..=64 {
            require_no_decrease(&default_plan(processors), &default_plan(processors + 1));
            let limited = |megabytes: u64| {
                let memory = memory(Some(megabytes * MB), processors);
                (MemoryPlan::plan(&options(), memory, processors), MemoryPlan::plan(&options(), memory, processors + 1))
            };
            for megabytes in (0..4000).step_by(16) {
                let (plan, more_processors) = limited(megabytes);
                require_no_decrease(&plan, &more_processors);
                require_no_decrease(&plan, &limited(megabytes + 16).0);
            }
        }
    }

    #[test]
    fn a_setting_for_parallel_files_never_means_fewer_uploads() {
        for processors in 1..=64 {
            let plan = |readers| {
                let options = BackupOptions { readers, ..options() };
                MemoryPlan::plan(&options, memory(None, processors), processors)
            };
            for readers in 1..=64 {
                require_no_decrease(&plan(readers), &plan(readers + 1));
                assert!(plan(readers).uploads >= MIN_UPLOADS);
            }
            assert!(plan(10).readers >= 4, "{:?}", plan(10));
        }
    }

    #[test]
    fn every_plan_fits_into_its_memory() {
        for megabytes in (0..3000).step_by(16) {
            for processors in [1, 2, 3, 4, 8, 16, 64] {
                for (pack_size, readers) in [(1, 0), (4 * MIB, 3), (16 * MIB, 0), (16 * MIB, 10), (128 * MIB, 0)] {
                    let options = BackupOptions { pack_size, readers, ..options() };
                    let memory = memory(Some(megabytes * MB), processors);
                    let plan = MemoryPlan::plan(&options, memory, processors);
                    let all = plan.workers * ENCODER_MEMORY + plan.chunk_budget() + plan.pack_budget();
                    assert!(all <= memory.max(MIN_MEMORY), "{plan:?}: {} of {} MiB", all / MIB, memory / MIB);
                    assert!(plan.pack_size <= pack_size && plan.uploads >= MIN_UPLOADS, "{plan:?}");
                }
            }
        }
    }
}
