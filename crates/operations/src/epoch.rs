//! The epochs of progress trees: larger for each process that takes up an operation or a transfer, and for each attempt.

use jiff::Timestamp;
use plimsoll_progress::Token;

/// An epoch for a tree that begins now, after one whose token was written.
pub fn next_epoch(written: Option<Token>) -> u64 {
    let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
    // The clock of an earlier process may have been ahead.
    written.map_or(now, |written| now.max(written.epoch.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_later_than_the_one_before_whatever_the_clock_says() {
        let now = next_epoch(None);
        assert!(now > 1_700_000_000_000);
        assert!(next_epoch(Some(Token { epoch: 5, sequence: 9 })) >= now);
        assert_eq!(next_epoch(Some(Token { epoch: now * 2, sequence: 1 })), now * 2 + 1);
    }
}
