//! Exponential back-off.

use std::time::Duration;

use tokio::time::Instant;

/// Exponential back-off: how long to pause between attempts, and how long to go on.
///
/// The pause doubles after every failed attempt, from `initial_pause` to `max_pause`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The pause after the first failure.
    pub initial_pause: Duration,
    /// No pause is longer.
    pub max_pause: Duration,
    /// No attempt starts after this, counted from the start of the first one.
    pub timeout: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            initial_pause: Duration::from_millis(100),
            max_pause: Duration::from_secs(10),
            timeout: Duration::from_mins(10),
        }
    }
}

impl RetryPolicy {
    /// The default pauses with another time limit.
    pub fn with_timeout(timeout: Duration) -> Self {
        Self { timeout, ..Self::default() }
    }

    /// The pause after so many failed attempts, counted from 1.
    pub fn pause_after(&self, failed_attempts: usize) -> Duration {
        let doublings = u32::try_from(failed_attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        self.initial_pause.saturating_mul(2_u32.saturating_pow(doublings)).min(self.max_pause)
    }

    /// Calls `attempt` until it succeeds, fails with an error that is not retryable, or the time is up. The value that
    /// `on_retry` returns lives for one pause: callers use it to show the wait.
    ///
    /// # Cancel safety
    /// Dropping the future between two attempts loses nothing.
    pub async fn run<T, E, F: Future<Output = Result<T, E>>, G>(
        &self,
        is_retryable: impl Fn(&E) -> bool,
        mut on_retry: impl FnMut(&E) -> G,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, E> {
        let started = Instant::now();
        let mut failed_attempts = 0;
        loop {
            let error = match attempt().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            failed_attempts += 1;
            let pause = self.pause_after(failed_attempts);
            if !is_retryable(&error) || started.elapsed() + pause > self.timeout {
                return Err(error);
            }
            let guard = on_retry(&error);
            tokio::time::sleep(pause).await;
            drop(guard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let policy = RetryPolicy::default();
        let pauses = [1, 2, 3, 7, 8, 1000].map(|failed| policy.pause_after(failed).as_millis());
        assert_eq!(pauses, [100, 200, 400, 6400, 10_000, 10_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_stops_at_its_timeout_and_at_an_error_that_is_not_retryable() {
        let policy = RetryPolicy::with_timeout(Duration::from_secs(1));
        for (is_retryable, expected) in [(true, 4), (false, 1)] {
            let mut attempts = 0;
            let failed: Result<(), _> = policy
                .run(
                    |()| is_retryable,
                    |()| (),
                    || {
                        attempts += 1;
                        std::future::ready(Err(()))
                    },
                )
                .await;
            assert_eq!((failed, attempts), (Err(()), expected));
        }
    }
}
