//! How much memory an operation may take.

use std::path::Path;

use crate::system::processors;

const MB: u64 = 1_000_000;
/// The memory of an operation on one or two processors.
const DEFAULT_MEMORY: u64 = 200 * MB;
/// The additional memory for each further processor.
const MEMORY_PER_PROCESSOR: u64 = 40 * MB;
/// The maximum without an explicit limit.
const MAX_DERIVED_MEMORY: u64 = 2000 * MB;
/// The program itself, and the trees that it reads.
const BASE: u64 = 28 * 1024 * 1024;
/// The index, for each blob of the repository.
const BYTES_PER_BLOB: u64 = 60;

/// The memory limit of a repository's operations, as far as it is configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes for all operations that run at the same time. `None` for half of what the container's limit leaves, or, without such a
    /// limit, for an amount that grows with the number of processors.
    pub bytes: Option<u64>,
    /// The number of operations that run at the same time, which share it. 0 counts as 1.
    pub operations: usize,
}

/// The memory of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryBudget {
    bytes: u64,
    /// Whether the index counts. Without a limit that must hold, it is extra.
    includes_index: bool,
}

impl MemoryBudget {
    /// The budget on this machine.
    pub(crate) fn new(limit: MemoryLimit) -> Self {
        Self::derive(limit, limit.bytes.is_none().then(cgroup_headroom).flatten(), processors())
    }

    /// The budget where the container's limit leaves `headroom` bytes.
    pub(crate) fn derive(limit: MemoryLimit, headroom: Option<u64>, processors: usize) -> Self {
        let further = processors.saturating_sub(2) as u64;
        let by_processors = (DEFAULT_MEMORY + further * MEMORY_PER_PROCESSOR).min(MAX_DERIVED_MEMORY);
        let (bytes, includes_index) = match (limit.bytes, headroom) {
            (Some(bytes), _) => (bytes, true),
            (None, Some(headroom)) => ((headroom / 2).min(MAX_DERIVED_MEMORY), true),
            (None, None) => (by_processors, false),
        };
        Self { bytes: bytes / limit.operations.max(1) as u64, includes_index }
    }

    /// The bytes for buffers, beside the program and an index of this many blobs.
    pub(crate) fn for_buffers(self, blobs: usize) -> usize {
        let index = if self.includes_index { blobs as u64 * BYTES_PER_BLOB } else { 0 };
        usize::try_from(self.bytes.saturating_sub(BASE + index)).unwrap_or(usize::MAX)
    }
}

/// The free memory of this process's control group; `None` if it has no limit.
fn cgroup_headroom() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let unified = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    let group = root.join(unified);
    // The limit of a parent holds too. In a container the path may be that of the host, which does not exist here.
    let groups = group.ancestors().take_while(|group| group.starts_with(root)).map(Path::to_owned);
    groups.chain([root.join("memory")]).filter_map(|group| headroom_of(&group)).min()
}

/// What the limit of a group leaves. Cached file content that is not in use can be dropped and does not count.
fn headroom_of(group: &Path) -> Option<u64> {
    let number = |name: &str| std::fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    // Version 2, or version 1.
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let statistics = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    headroom(limit, used, inactive_file(&statistics))
}

fn headroom(limit: u64, used: u64, inactive: u64) -> Option<u64> {
    // Version 1 reports a number near 2^63 where there is no limit.
    (limit < 1 << 60).then(|| limit.saturating_sub(used.saturating_sub(inactive)))
}

fn inactive_file(statistics: &str) -> u64 {
    let value = |name: &str| {
        let line = statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok())
    };
    value("total_inactive_file").or_else(|| value("inactive_file")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_the_limit_or_half_of_what_the_container_leaves_or_grows_with_the_processors() {
        let (no_limit, limited) = (None, Some(600 * MB));
        for (limit, operations, headroom, processors, expected) in [
            (no_limit, 0, None, 1, 200 * MB),
            (no_limit, 1, None, 2, 200 * MB),
            (no_limit, 1, None, 16, 760 * MB),
            (no_limit, 1, None, 64, 2000 * MB),
            (no_limit, 4, None, 16, 190 * MB),
            (no_limit, 1, Some(500 * MB), 16, 250 * MB),
            (no_limit, 2, Some(500 * MB), 16, 125 * MB),
            (no_limit, 1, Some(64_000 * MB), 4, 2000 * MB),
            (limited, 1, Some(500 * MB), 16, 600 * MB),
            (limited, 3, None, 2, 200 * MB),
        ] {
            let budget = MemoryBudget::derive(MemoryLimit { bytes: limit, operations }, headroom, processors);
            assert_eq!(budget.bytes, expected, "{limit:?} {operations} {headroom:?} {processors}");
        }
    }

    #[test]
    fn the_index_counts_where_a_limit_must_hold() {
        let limited = MemoryBudget::derive(MemoryLimit { bytes: Some(400 * MB), operations: 1 }, None, 2);
        assert_eq!(limited.for_buffers(0) - limited.for_buffers(1_000_000), 60_000_000);
        let derived = MemoryBudget::derive(MemoryLimit::default(), None, 2);
        assert_eq!(derived.for_buffers(0), derived.for_buffers(1_000_000));
        assert_eq!(limited.for_buffers(usize::MAX / 100), 0, "a huge index");
    }

    #[test]
    fn the_headroom_of_a_container_does_not_count_its_idle_cache() {
        let version_2 = "anon 1000\nfile 900\ninactive_file 300\nactive_file 600\n";
        let version_1 = "cache 900\ninactive_file 7\ntotal_inactive_file 300\n";
        assert_eq!((inactive_file(version_2), inactive_file(version_1), inactive_file("")), (300, 300, 0));
        assert_eq!(headroom(10_000, 4000, 300), Some(6300));
        assert_eq!(headroom(1000, 4000, 300), Some(0));
        assert_eq!(headroom(9_223_372_036_854_771_712, 4000, 300), None);
    }
}
