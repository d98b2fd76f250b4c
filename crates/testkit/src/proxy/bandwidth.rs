//! A bandwidth limit that all connections share in both directions.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Unlimited by default.
#[derive(Debug, Default)]
pub(super) struct BandwidthLimit(Mutex<BandwidthState>);

#[derive(Debug, Default)]
struct BandwidthState {
    bytes_per_second: Option<u64>,
    /// When all admitted bytes have passed.
    free_at: Option<Instant>,
}

impl BandwidthLimit {
    pub(super) fn set(&self, bytes_per_second: Option<u64>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = BandwidthState { bytes_per_second, free_at: None };
    }

    /// Waits until this number of bytes has passed, after all earlier ones.
    pub(super) async fn acquire(&self, bytes: usize) {
        if let Some(until) = self.reserve(bytes) {
            tokio::time::sleep_until(until).await;
        }
    }

    fn reserve(&self, bytes: usize) -> Option<Instant> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let micros = (bytes as u64).saturating_mul(1_000_000).checked_div(state.bytes_per_second?)?;
        let now = Instant::now();
        let until = state.free_at.map_or(now, |free_at| free_at.max(now)) + Duration::from_micros(micros);
        state.free_at = Some(until);
        Some(until)
    }
}
