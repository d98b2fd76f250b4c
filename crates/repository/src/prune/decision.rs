//! Which packs are removed, and which are rewritten: a pure function of how much of each pack is used.

/// How much of a pack is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PackUse {
    /// Bytes of blobs that snapshots use, with their header entries.
    pub used: u64,
    /// All other bytes of blobs, also those of further copies of used blobs.
    pub unused: u64,
    /// Of the unused bytes, those of further copies of used blobs.
    pub duplicate: u64,
    /// Bytes of used blobs that are in no other pack.
    pub only_copy: u64,
    pub has_trees: bool,
    pub has_data: bool,
    /// Whether it has uncompressed trees in a repository whose trees should be compressed.
    pub has_plain_trees: bool,
}

impl PackUse {
    pub(super) fn size(&self) -> u64 {
        self.used + self.unused
    }

    fn is_data_only(&self) -> bool {
        self.has_data && !self.has_trees
    }

    fn is_mixed(&self) -> bool {
        self.has_data && self.has_trees
    }

    fn is_small(&self, limits: Limits) -> bool {
        self.size() < limits.pack_size / SMALL_PACK_PART
    }
}

/// The limits of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Unused bytes may remain, up to this percentage of what remains.
    pub max_unused_percent: u8,
    pub pack_size: u64,
}

/// The decision, as numbers of packs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Decision {
    /// Packs without a used blob.
    pub removed: Vec<u32>,
    /// Packs whose used blobs move into new packs, in this order.
    pub rewritten: Vec<u32>,
}

/// A pack is small if it has less than this part of a full one.
const SMALL_PACK_PART: u64 = 25;
/// Fewer small packs are left alone: joining them would save little, and each prune would do it again.
const MIN_SMALL_PACKS: usize = 10;

/// Decides as restic's prune: packs without a used blob are removed; mixed packs, packs of trees with unused blobs and packs with
/// uncompressed trees are rewritten; then packs with the largest unused part, until little enough remains. Many small packs are joined.
/// Unlike restic, a pack that is not full may keep its unused part too, so fewer bytes are moved.
///
/// `packs` has the number of each pack that may be changed; all others stay.
pub(super) fn decide(packs: &[(u32, PackUse)], unused_elsewhere: u64, limits: Limits) -> Decision {
    let mut decision = Decision::default();
    let (mut candidates, mut small) = (Vec::new(), Vec::new());
    let used: u64 = packs.iter().map(|(_, pack)| pack.used).sum();
    let mut unused = unused_elsewhere;
    for &(number, pack) in packs {
        if pack.used == 0 {
            decision.removed.push(number);
            continue;
        }
        unused += pack.unused;
        let must_rewrite = pack.is_mixed() || pack.has_plain_trees;
        if pack.unused > 0 || must_rewrite {
            candidates.push((number, pack));
        } else if pack.is_small(limits) {
            small.push((number, pack));
        }
    }
    if small.len() >= MIN_SMALL_PACKS {
        candidates.append(&mut small);
    }
    candidates
        .sort_by(|(_, one), (_, other)| rank(one, limits).cmp(&rank(other, limits)).then(by_unused_part(one, other)));
    let percent = u64::from(limits.max_unused_percent.min(99));
    let max_unused = used.saturating_mul(percent) / (100 - percent);
    for (number, pack) in candidates {
        if pack.is_data_only() && !pack.is_small(limits) && unused <= max_unused {
            continue;
        }
        unused -= pack.unused;
        decision.rewritten.push(number);
    }
    decision
}

/// Trees first, then small packs.
fn rank(pack: &PackUse, limits: Limits) -> (bool, bool) {
    (pack.is_data_only(), !pack.is_small(limits))
}

/// The pack with the larger unused part first.
fn by_unused_part(one: &PackUse, other: &PackUse) -> std::cmp::Ordering {
    let product = |pack: &PackUse, with: &PackUse| u128::from(pack.unused) * u128::from(with.used);
    product(other, one).cmp(&product(one, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u64 = 16 << 20;
    const LIMITS: Limits = Limits { max_unused_percent: 5, pack_size: FULL };

    fn data(used: u64, unused: u64) -> PackUse {
        PackUse { used, unused, has_data: true, ..PackUse::default() }
    }

    fn trees(used: u64, unused: u64) -> PackUse {
        PackUse { used, unused, has_trees: true, ..PackUse::default() }
    }

    fn decided(packs: &[PackUse]) -> (Vec<u32>, Vec<u32>) {
        let numbered: Vec<_> = (0..).zip(packs.iter().copied()).collect();
        let Decision { removed, rewritten } = decide(&numbered, 0, LIMITS);
        (removed, rewritten)
    }

    #[test]
    fn packs_without_a_used_blob_are_removed_and_full_ones_stay() {
        assert_eq!(decided(&[data(FULL, 0), data(0, FULL), trees(0, 5), trees(FULL, 0)]), (vec![1, 2], vec![]));
    }

    #[test]
    fn packs_are_rewritten_from_the_largest_unused_part_until_little_remains() {
        let mut packs = vec![data(FULL, 0); 20];
        packs.extend([data(FULL - 1000, 1000), data(FULL / 10, FULL), data(FULL / 2, FULL / 2)]);
        assert_eq!(decided(&packs), (vec![], vec![21]), "5 % of the rest may stay unused");
        let strict = Limits { max_unused_percent: 0, ..LIMITS };
        let numbered: Vec<_> = (0..).zip(packs).collect();
        assert_eq!(decide(&numbered, 0, strict).rewritten, [21, 22, 20]);
        assert_eq!(decide(&numbered, FULL * 10, LIMITS).rewritten, [21, 22, 20], "unused bytes elsewhere count too");
    }

    #[test]
    fn mixed_packs_trees_with_unused_parts_and_uncompressed_trees_are_always_rewritten() {
        let mixed = PackUse { has_trees: true, ..data(FULL, 0) };
        let plain = PackUse { has_plain_trees: true, ..trees(FULL, 0) };
        let packs = [data(FULL * 9, 0), mixed, plain, trees(FULL, 1), trees(FULL, 0)];
        let (removed, mut rewritten) = decided(&packs);
        rewritten.sort_unstable();
        assert_eq!((removed, rewritten), (vec![], vec![1, 2, 3]));
    }

    #[test]
    fn small_packs_are_joined_when_there_are_ten() {
        let small = |count| vec![data(FULL / 30, 0); count];
        assert_eq!(decided(&small(9)), (vec![], vec![]));
        assert_eq!(decided(&small(10)).1.len(), 10);
        let mut packs = small(1);
        packs[0].unused = 1;
        assert_eq!(decided(&packs), (vec![], vec![0]), "a small pack with an unused part is rewritten at once");
    }
}
