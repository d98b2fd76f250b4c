//! Sparse files: blocks of zeros are not written.

use std::ops::Range;

/// The granularity of holes in a file system.
const PAGE_SIZE: usize = 4096;

/// The ranges of a blob that must be written at this offset of a file: all but the pages, and partial pages at both ends, of zeros.
pub(super) fn data_ranges(plain: &[u8], offset: u64) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = skip(plain, offset, at, true);
        at = skip(plain, offset, start, false);
        (start < at).then_some(start..at)
    })
}

/// The end of the pages from `at` on that are zeros, or that are not.
fn skip(plain: &[u8], offset: u64, mut at: usize, zeros: bool) -> usize {
    while at < plain.len() {
        let next = plain.len().min(at + to_page_end(offset + at as u64));
        if is_zero(&plain[at..next]) != zeros {
            break;
        }
        at = next;
    }
    at
}

fn to_page_end(offset: u64) -> usize {
    PAGE_SIZE - usize::try_from(offset % PAGE_SIZE as u64).unwrap_or(0)
}

/// Checks the start of a page first, which is enough for nearly all pages with data.
fn is_zero(page: &[u8]) -> bool {
    let (head, rest) = page.split_at(page.len().min(16));
    let is_zero = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum | byte) == 0;
    is_zero(head) && is_zero(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pages_of_zeros_are_skipped_at_any_offset() {
        let mut plain = vec![0; 10 * PAGE_SIZE];
        plain[3 * PAGE_SIZE + 17] = 1;
        plain[7 * PAGE_SIZE..].fill(2);
        assert_eq!(
            data_ranges(&plain, 0).collect::<Vec<_>>(),
            [3 * PAGE_SIZE..4 * PAGE_SIZE, 7 * PAGE_SIZE..10 * PAGE_SIZE]
        );
        assert_eq!(
            data_ranges(&plain, 4000).collect::<Vec<_>>(),
            [2 * PAGE_SIZE + 96..3 * PAGE_SIZE + 96, 6 * PAGE_SIZE + 96..10 * PAGE_SIZE]
        );
        assert_eq!(data_ranges(&plain[..2 * PAGE_SIZE], 5).count(), 0);
        assert_eq!(data_ranges(&[], 5).count(), 0);
    }

    proptest! {
        #[test]
        fn written_ranges_over_zeros_are_the_blob(
            pieces in proptest::collection::vec((0..3_u8, 1..9000_usize), 0..8),
            offset in 0..20_000_u64,
        ) {
            let plain: Vec<u8> = pieces.iter().flat_map(|(byte, length)| vec![*byte; *length]).collect();
            let mut written = vec![0; plain.len()];
            for part in data_ranges(&plain, offset) {
                written[part.clone()].copy_from_slice(&plain[part]);
            }
            prop_assert_eq!(written, plain);
        }
    }
}
