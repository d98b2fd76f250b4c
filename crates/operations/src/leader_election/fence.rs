//! Stops the effects of a process that no longer leads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_engine::Error;
use tokio::time::Instant;

/// Says whether this process may still have effects.
pub struct Fence {
    renewed: Mutex<Instant>,
    lost: AtomicBool,
    term: Duration,
}

impl Fence {
    pub(super) fn new(term: Duration, renewed: Instant) -> Self {
        Self { renewed: Mutex::new(renewed), lost: AtomicBool::new(false), term }
    }

    /// Refuses when the last renewal is too long ago for a new effect to be safe.
    pub fn check(&self) -> Result<(), Error> {
        self.check_silence(self.term * 2 / 3)
    }

    /// Refuses when the term is over: for the requests of an effect that has begun. A short outage of the API server does not
    /// interrupt it.
    pub fn check_term(&self) -> Result<(), Error> {
        self.check_silence(self.term)
    }

    fn check_silence(&self, limit: Duration) -> Result<(), Error> {
        let silent = self.silent_for();
        if self.lost.load(Ordering::Acquire) {
            return Err(Error::Fenced("another process holds the Lease".into()));
        }
        if silent >= limit {
            return Err(Error::Fenced(format!("the Lease was not renewed for {silent:.1?}")));
        }
        Ok(())
    }

    /// Time since the last renewal.
    fn silent_for(&self) -> Duration {
        self.renewed.lock().map_or(Duration::MAX, |renewed| renewed.elapsed())
    }

    /// Returns when the Lease has not been renewed for its whole term.
    pub(super) async fn term_ended(&self) {
        while let Some(left) = self.term.checked_sub(self.silent_for()).filter(|left| !left.is_zero()) {
            tokio::time::sleep(left).await;
        }
    }

    pub(super) fn renew(&self, at: Instant) {
        if let Ok(mut renewed) = self.renewed.lock() {
            *renewed = at;
        }
    }

    /// Refuses from now on: this process does not hold the Lease any more.
    pub(super) fn close(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_fence_closes_at_two_thirds_of_the_term() {
        let fence = Fence::new(Duration::from_secs(15), Instant::now());
        tokio::time::advance(Duration::from_millis(9_900)).await;
        assert!(fence.check().is_ok());
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(fence.check().unwrap_err().reason(), "LeadershipLost");
        assert!(fence.check_term().is_ok(), "an effect that has begun may end");
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(fence.check_term().unwrap_err().reason(), "LeadershipLost");
        fence.renew(Instant::now());
        assert!(fence.check().is_ok());
    }
}
