//! The options of a prune.

use std::time::Duration;

/// The options of a prune.
#[derive(Clone, Debug)]
pub struct PruneOptions {
    /// Unused bytes may remain, up to this percentage of the repository's size after the prune.
    pub max_unused_percent: u8,
    /// The size at which a pack is closed, limited by the memory.
    pub pack_size: u64,
    /// How long the exclusive lock is held at a time.
    pub slice: Duration,
    /// How long other clients can take the lock between two slices.
    pub pause: Duration,
    /// How long to wait for the exclusive lock while other clients hold locks.
    pub lock_timeout: Duration,
    /// Packs that are in no index file are removed when they are older. Younger ones may be the ones that an interrupted backup
    /// continues with, or whose index file is about to appear.
    pub min_unindexed_age: Duration,
    /// How many bytes of packs are rewritten before their old packs are deleted. The repository grows by as much meanwhile.
    pub round_bytes: u64,
}

impl Default for PruneOptions {
    fn default() -> Self {
        Self {
            max_unused_percent: 5,
            pack_size: 16 << 20,
            slice: Duration::from_mins(10),
            // A client that retries every minute, as restic's --retry-lock, gets its turn.
            pause: Duration::from_secs(65),
            lock_timeout: Duration::ZERO,
            min_unindexed_age: Duration::from_hours(1),
            round_bytes: 4 << 30,
        }
    }
}
