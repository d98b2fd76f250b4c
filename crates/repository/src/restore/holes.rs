//! Leaving zeros out: a new file has them already wherever nothing is written.

use std::ops::Range;

/// What a file system keeps or leaves out as a whole.
const PAGE: usize = 4096;

/// The parts of a blob that have to be written at this place of a file: all but the pages, and pieces of pages at both ends,
/// that are zeros.
pub(super) fn between(plain: &[u8], offset: u64) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = skip(plain, offset, at, true);
        at = skip(plain, offset, start, false);
        (start < at).then_some(start..at)
    })
}

/// Where the pages from here on end that are zeros, or that are not.
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
    PAGE - usize::try_from(offset % PAGE as u64).unwrap_or(0)
}

/// The beginning of a page is looked at first: it tells nearly all that hold something.
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
    fn whole_pages_of_zeros_are_left_out_wherever_the_blob_begins() {
        let mut plain = vec![0; 10 * PAGE];
        plain[3 * PAGE + 17] = 1;
        plain[7 * PAGE..].fill(2);
        assert_eq!(between(&plain, 0).collect::<Vec<_>>(), [3 * PAGE..4 * PAGE, 7 * PAGE..10 * PAGE]);
        assert_eq!(between(&plain, 4000).collect::<Vec<_>>(), [2 * PAGE + 96..3 * PAGE + 96, 6 * PAGE + 96..10 * PAGE]);
        assert_eq!(between(&plain[..2 * PAGE], 5).count(), 0);
        assert_eq!(between(&[], 5).count(), 0);
    }

    proptest! {
        #[test]
        fn what_is_written_over_zeros_is_the_blob(
            pieces in proptest::collection::vec((0..3_u8, 1..9000_usize), 0..8),
            offset in 0..20_000_u64,
        ) {
            let plain: Vec<u8> = pieces.iter().flat_map(|(byte, length)| vec![*byte; *length]).collect();
            let mut written = vec![0; plain.len()];
            for part in between(&plain, offset) {
                written[part.clone()].copy_from_slice(&plain[part]);
            }
            prop_assert_eq!(written, plain);
        }
    }
}
