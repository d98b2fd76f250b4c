//! A line with so much room and no more, shared by all connections in both directions.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// As fast as it goes, unless told otherwise.
#[derive(Debug, Default)]
pub(super) struct Line(Mutex<Pace>);

#[derive(Debug, Default)]
struct Pace {
    bytes_a_second: Option<u64>,
    /// When everything that was let in has passed.
    free: Option<Instant>,
}

impl Line {
    pub(super) fn set(&self, bytes_a_second: Option<u64>) {
        let mut pace = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *pace = Pace { bytes_a_second, free: None };
    }

    /// Waits until so many bytes have passed, after all that came before them.
    pub(super) async fn pass(&self, bytes: usize) {
        if let Some(until) = self.book(bytes) {
            tokio::time::sleep_until(until).await;
        }
    }

    fn book(&self, bytes: usize) -> Option<Instant> {
        let mut pace = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let micros = (bytes as u64).saturating_mul(1_000_000).checked_div(pace.bytes_a_second?)?;
        let now = Instant::now();
        let until = pace.free.map_or(now, |free| free.max(now)) + Duration::from_micros(micros);
        pace.free = Some(until);
        Some(until)
    }
}
