//! The pauses before a failed watch is opened again.
//!
//! The pauses of kube's own policy grow to between 30 s and a minute, and all watches of a controller share them: after an outage
//! of the API server, new work could go unseen for two minutes. Ours stay short. One watch is one request, so that costs a
//! recovering API server little.

use std::time::Duration;

use kube::runtime::utils::Backoff;
use plimsoll_store::RetryPolicy;

/// A watch is retried as long as its owner lives.
const PAUSES: RetryPolicy = RetryPolicy {
    initial_pause: Duration::from_millis(500),
    max_pause: Duration::from_secs(4),
    timeout: Duration::MAX,
};

/// The pauses of a [`RetryPolicy`], each extended by up to half of it so that the watches of many processes do not coincide.
#[derive(Clone, Debug, Default)]
pub struct WatchBackoff {
    failed_attempts: usize,
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    /// Always another pause: a watch is retried forever.
    fn next(&mut self) -> Option<Duration> {
        self.failed_attempts += 1;
        Some(PAUSES.pause_after(self.failed_attempts).mul_f64(rand::random_range(1.0..1.5)))
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        *self = Self::default();
    }
}
