//! The number of concurrent uploads: it grows while packs wait for an upload and the store takes no longer for each.

use std::time::Duration;

/// An upload may take this much longer, in percent, before the number stops growing.
const MAX_SLOWDOWN: u32 = 20;

/// The current limit of concurrent uploads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UploadLimit {
    current: usize,
    max: usize,
    /// Whether a pack waited for an upload since the last change.
    has_waited: bool,
    /// The uploads since the last change.
    count: u32,
    duration: Duration,
    /// The shortest mean duration so far.
    best: Option<Duration>,
}

impl UploadLimit {
    /// Starts with this limit.
    pub(super) fn new(start: usize, max: usize) -> Self {
        Self { current: start, max: max.max(start), has_waited: false, count: 0, duration: Duration::ZERO, best: None }
    }

    pub(super) fn current(&self) -> usize {
        self.current
    }

    /// A pack waits for an upload.
    pub(super) fn record_wait(&mut self) {
        self.has_waited = true;
    }

    /// An upload of a pack took this long. Decides after as many uploads as run at the same time.
    pub(super) fn record_upload(&mut self, duration: Duration) {
        self.count += 1;
        self.duration += duration;
        if (self.count as usize) < self.current {
            return;
        }
        let mean = self.duration / self.count;
        let best = self.best.map_or(mean, |best| best.min(mean));
        if self.has_waited && mean * 100 <= best * (100 + MAX_SLOWDOWN) {
            self.current = (self.current + 1).min(self.max);
        }
        *self = Self { has_waited: false, count: 0, duration: Duration::ZERO, best: Some(best), ..*self };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit after uploads that take as long as `duration` says for each limit.
    fn limit_after(uploads: usize, waits: bool, duration: impl Fn(usize) -> u64) -> usize {
        let mut limit = UploadLimit::new(3, 16);
        for _ in 0..uploads {
            if waits {
                limit.record_wait();
            }
            limit.record_upload(Duration::from_millis(duration(limit.current())));
        }
        limit.current()
    }

    #[test]
    fn the_limit_grows_to_its_maximum_while_packs_wait_and_uploads_take_no_longer() {
        assert_eq!(limit_after(1000, true, |_| 200), 16);
        assert_eq!(limit_after(3, true, |_| 200), 4, "after the first round");
    }

    #[test]
    fn the_limit_stays_if_nothing_waits() {
        assert_eq!(limit_after(1000, false, |_| 200), 3);
    }

    #[test]
    fn the_limit_stops_where_connections_share_the_line() {
        // Up to five connections have their own rate; more share the line.
        assert_eq!(limit_after(1000, true, |uploads| 200 * uploads.max(5) as u64 / 5), 7);
    }

    #[test]
    fn a_first_upload_on_a_new_connection_may_take_longer() {
        let mut limit = UploadLimit::new(3, 16);
        for duration in [900, 900, 900, 200, 200, 200, 200] {
            limit.record_wait();
            limit.record_upload(Duration::from_millis(duration));
        }
        assert_eq!(limit.current(), 5);
    }
}
