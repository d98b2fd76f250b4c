//! The counters that workers touch. Nothing here takes a lock or reads a clock.

use std::cell::Cell as ThreadCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::counts::{Counts, MAX_COUNT, Total, Unit};
use crate::task::Handle;

/// Threads are spread over this many counters, so that two of them rarely fight for one cache line.
const SHARDS: usize = 2;

/// A counter with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(AtomicU64);

/// The shared part of a meter.
#[derive(Debug)]
pub(crate) struct MeterCell {
    unit: Unit,
    added: [Shard; SHARDS],
    absolute: AtomicU64,
    skipped: AtomicU64,
    failed: AtomicU64,
    total: PackedTotal,
}

thread_local! {
    static SHARD: ThreadCell<usize> = const { ThreadCell::new(usize::MAX) };
}

fn shard_of_this_thread() -> usize {
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    })
}

impl MeterCell {
    pub(crate) fn new(unit: Unit, total: Total) -> Self {
        Self {
            unit,
            added: Default::default(),
            absolute: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            total: PackedTotal::new(total),
        }
    }

    pub(crate) fn unit(&self) -> Unit {
        self.unit
    }

    /// One reading. The counters are read before the total: a worker raises the total before it counts against it, so
    /// whatever is seen counted is covered by the total that is read afterwards.
    pub(crate) fn read(&self) -> Counts {
        let added: u64 = self.added.iter().map(|shard| shard.0.load(Ordering::Acquire)).sum();
        let done = added.max(self.absolute.load(Ordering::Acquire));
        let skipped = self.skipped.load(Ordering::Acquire);
        let failed = self.failed.load(Ordering::Acquire);
        Counts { done, skipped, failed, total: self.total.load(), ..Counts::zero(self.unit) }
    }
}

/// A [`Total`] in one word, so that kind and number can never be read apart.
#[derive(Debug)]
struct PackedTotal(AtomicU64);

impl PackedTotal {
    fn new(total: Total) -> Self {
        Self(AtomicU64::new(Self::pack(total)))
    }

    fn pack(total: Total) -> u64 {
        match total {
            Total::Unknown => 0,
            Total::Growing(value) => value.min(MAX_COUNT) << 2 | 1,
            Total::Final(value) => value.min(MAX_COUNT) << 2 | 2,
        }
    }

    fn unpack(word: u64) -> Total {
        match word & 3 {
            0 => Total::Unknown,
            1 => Total::Growing(word >> 2),
            _ => Total::Final(word >> 2),
        }
    }

    fn load(&self) -> Total {
        Self::unpack(self.0.load(Ordering::Acquire))
    }

    /// Replaces the total unless it is final already; says whether it did.
    fn change(&self, next: impl Fn(Total) -> Total) -> bool {
        let step = |word| {
            let now = Self::unpack(word);
            (!now.is_final()).then(|| Self::pack(next(now)))
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, step).is_ok()
    }
}

/// A counter of one task. Cheap to clone, to share and to add to.
///
/// A meter is a handle of its task too: the task is not interrupted while a meter is held.
#[derive(Clone, Debug)]
pub struct Meter {
    cell: Arc<MeterCell>,
    _task: Arc<Handle>,
}

impl Meter {
    pub(crate) fn new(cell: Arc<MeterCell>, task: Arc<Handle>) -> Self {
        Self { cell, _task: task }
    }

    /// Counts `n` as done.
    #[inline]
    pub fn add(&self, n: u64) {
        self.cell.added[shard_of_this_thread()].0.fetch_add(n, Ordering::Release);
    }

    /// Counts `n` as skipped.
    #[inline]
    pub fn skip(&self, n: u64) {
        self.cell.skipped.fetch_add(n, Ordering::Release);
    }

    /// Counts `n` as failed.
    #[inline]
    pub fn fail(&self, n: u64) {
        self.cell.failed.fetch_add(n, Ordering::Release);
    }

    /// Takes over an absolute number, for sources that report one. A smaller number than before changes nothing.
    ///
    /// For a meter that is also added to, the greater of the two counts is shown, not their sum.
    #[inline]
    pub fn set_done(&self, n: u64) {
        self.cell.absolute.fetch_max(n, Ordering::Release);
    }

    /// Says how much there is. Ignored, and answered with `false`, once the total is final. A final total below what is
    /// settled already is raised to that; what was known once does not become unknown again.
    ///
    /// Say it before counting against it.
    pub fn set_total(&self, total: Total) -> bool {
        let settled = self.cell.read().settled();
        self.cell.total.change(|now| match total {
            Total::Unknown => now,
            Total::Growing(value) => Total::Growing(value),
            Total::Final(value) => Total::Final(value.max(settled)),
        })
    }

    /// Adds to a total that is still growing, or begins one. Safe from many threads.
    pub fn grow_total(&self, by: u64) -> bool {
        self.cell.total.change(|now| Total::Growing(now.value().unwrap_or(0).saturating_add(by)))
    }

    /// Declares the total, as far as it has grown, to be final.
    pub fn finalize_total(&self) -> bool {
        let settled = self.cell.read().settled();
        self.cell.total.change(|now| Total::Final(now.value().unwrap_or(0).max(settled)))
    }

    /// What this process has counted so far (without what an earlier one had).
    pub fn counts(&self) -> Counts {
        self.cell.read()
    }

    /// What it counts.
    pub fn unit(&self) -> Unit {
        self.cell.unit
    }
}
