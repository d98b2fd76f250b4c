//! Retries of transfers that failed after bytes had moved.
//!
//! A provider's own retries measure from the start of a request and end after [`Tuning::retry_timeout`], however far the request
//! came. On a slow connection a large body takes longer than that. A transfer that fails later is restarted here, with a new
//! signature. Only time without progress counts against `retry_timeout`, so an unreachable store fails as early as before.
//!
//! ```text
//!  attempt 1  ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇░░░ failed    ▇ bytes move     ░ idle: the sum may reach `retry_timeout`
//!  pause                           ░░
//!  attempt 2                         ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇ stored
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind, HttpResponse};
use object_store::retry::{RetryContext, RetryPolicy as ProviderRetryPolicy};
use tokio::time::Instant;

use crate::{RetryPolicy, Tuning};

/// Pauses are as long as those of the providers' own retries. The time limit is [`Tuning::retry_timeout`].
const TRANSFER_PAUSES: RetryPolicy = RetryPolicy {
    initial_pause: Duration::from_millis(100),
    max_pause: Duration::from_secs(15),
    timeout: Duration::MAX,
};

tokio::task_local! {
    /// The transfer that the current task works for. Parts of an upload leave no other way to pass it on.
    static CURRENT: Arc<TransferAttempts>;
}

/// The attempts of one transfer: how many failed, and how long no bytes moved in all of them.
#[derive(Debug, Default)]
pub(crate) struct TransferAttempts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Bytes of the request body that any attempt has sent, and that the current one has.
    sent: u64,
    sent_now: u64,
    /// Failed attempts whose error was retryable.
    failed: usize,
    /// Whether the last error was retryable.
    is_retryable: bool,
    /// How often the transfer was restarted here.
    restarts: usize,
    /// Idle time of all attempts before the current one.
    idle_before: Duration,
    /// When bytes last moved, or the current attempt began. `None` before the first attempt: signing takes time, too.
    last_progress: Option<Instant>,
}

impl TransferAttempts {
    /// The current task's transfer; an unobserved one outside of [`TransferAttempts::scope`].
    pub(crate) fn current() -> Arc<Self> {
        CURRENT.try_with(Arc::clone).unwrap_or_default()
    }

    /// Runs `work` as part of this transfer.
    pub(crate) async fn scope<F: Future>(self: &Arc<Self>, work: F) -> F::Output {
        CURRENT.scope(self.clone(), work).await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a request begins.
    pub(crate) fn begin_attempt(&self) {
        let mut state = self.state();
        state.idle_before = state.total_idle();
        state.last_progress = Some(Instant::now());
        state.sent_now = 0;
    }

    /// Records that bytes of the request body were sent. Returns how many of them no earlier attempt had sent.
    pub(crate) fn record_sent(&self, bytes: u64) -> u64 {
        let mut state = self.state();
        state.sent_now += bytes;
        let new = state.sent_now.saturating_sub(state.sent);
        state.sent += new;
        new
    }

    /// Records that bytes moved until then.
    pub(crate) fn record_progress(&self, until: Instant) {
        let mut state = self.state();
        state.last_progress = state.last_progress.max(Some(until));
    }

    /// Records the response of a request, or that there was none.
    pub(crate) fn record_response(&self, response: &Result<HttpResponse, HttpError>) {
        match response {
            Ok(response) if response.status().is_success() => {
                self.state().is_retryable = false;
                self.record_progress(Instant::now());
            }
            response => self.record_failure(is_retryable(response)),
        }
    }

    /// Records a failed attempt.
    pub(crate) fn record_failure(&self, is_retryable: bool) {
        let mut state = self.state();
        state.failed += usize::from(is_retryable);
        state.is_retryable = is_retryable;
    }

    /// Resets the counters: the bytes received so far are kept, so the rest of the transfer has the full limits.
    pub(crate) fn reset(&self) {
        let mut state = self.state();
        (state.failed, state.idle_before) = (0, Duration::ZERO);
    }

    /// Whether the transfer is to be restarted. Pauses first if so.
    pub(crate) async fn pause_before_retry(&self, tuning: &Tuning) -> bool {
        let Some(pause) = self.next_pause(tuning) else { return false };
        tokio::time::sleep(pause).await;
        true
    }

    fn next_pause(&self, tuning: &Tuning) -> Option<Duration> {
        let mut state = self.state();
        if !state.is_retryable || state.failed > tuning.max_retries || state.total_idle() >= tuning.retry_timeout {
            return None;
        }
        state.restarts += 1;
        Some(TRANSFER_PAUSES.pause_after(state.failed))
    }

    /// The number of failed attempts, if the transfer was restarted here at least once.
    pub(crate) fn failed_attempts(&self) -> Option<usize> {
        let state = self.state();
        (state.restarts > 0).then_some(state.failed)
    }
}

impl State {
    fn total_idle(&self) -> Duration {
        self.idle_before + self.last_progress.map_or(Duration::ZERO, |last| last.elapsed())
    }
}

/// The same classification as in the providers' own retries of idempotent requests.
fn is_retryable(response: &Result<HttpResponse, HttpError>) -> bool {
    use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
    match response {
        Ok(response) => response.status().is_server_error() || matches!(response.status().as_u16(), 408 | 429),
        Err(error) => matches!(error.kind(), Connect | Request | Timeout | Interrupted),
    }
}

/// Restarts parts of an upload. Each part must be sent in a [`TransferAttempts::scope`] of its own.
#[derive(Debug)]
pub(crate) struct PartRetryPolicy(pub Tuning);

#[async_trait::async_trait]
impl ProviderRetryPolicy for PartRetryPolicy {
    async fn retry(&self, _: RetryContext) -> bool {
        TransferAttempts::current().pause_before_retry(&self.0).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TUNING: Tuning = Tuning {
        idle_timeout: Duration::from_mins(1),
        connect_timeout: Duration::from_secs(10),
        max_retries: 10,
        retry_timeout: Duration::from_mins(3),
    };

    /// Attempts that each move bytes for so many seconds, are idle for so many, and fail. Is the transfer restarted?
    async fn is_restarted_after(attempts: &[(u64, u64)], is_retryable: bool) -> bool {
        let transfer = TransferAttempts::default();
        tokio::time::advance(Duration::from_mins(10)).await;
        for &(moving, idle) in attempts {
            transfer.begin_attempt();
            tokio::time::advance(Duration::from_secs(moving)).await;
            transfer.record_progress(Instant::now());
            tokio::time::advance(Duration::from_secs(idle)).await;
            transfer.record_failure(is_retryable);
        }
        transfer.next_pause(&TUNING).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_transfer_is_restarted_while_it_moves_bytes_and_fails_once_it_is_idle() {
        let table = [
            ("failed after five minutes", vec![(300, 0)], true),
            ("moved for five minutes, then idle", vec![(300, 60)], true),
            ("failed late ten times", vec![(300, 1); 10], true),
            ("failed late eleven times", vec![(300, 1); 11], false),
            ("failed at once as often as a provider retries", vec![(0, 1); 11], false),
            ("no server for three minutes", vec![(0, 180)], false),
            ("the server took no more than its buffers hold", vec![(1, 60); 3], false),
            ("moved, then the server was gone", vec![(300, 0), (0, 180)], false),
            ("idle for too long in all", vec![(300, 60); 3], false),
        ];
        for (case, attempts, expected) in table {
            assert_eq!(is_restarted_after(&attempts, true).await, expected, "{case}");
        }
        assert!(!is_restarted_after(&[(300, 0)], false).await, "an error that is not retryable");
    }

    #[test]
    fn bytes_that_an_earlier_attempt_has_sent_are_not_new() {
        let transfer = TransferAttempts::default();
        let attempt = |chunks: &[u64]| {
            transfer.begin_attempt();
            chunks.iter().map(|bytes| transfer.record_sent(*bytes)).collect::<Vec<_>>()
        };
        assert_eq!(attempt(&[10, 10]), [10, 10]);
        assert_eq!(attempt(&[10, 5]), [0, 0]);
        assert_eq!(attempt(&[15, 10, 10]), [0, 5, 10]);
        assert_eq!(attempt(&[35]), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_before_a_reset_do_not_count() {
        let transfer = TransferAttempts::default();
        for _ in 0..100 {
            transfer.begin_attempt();
            tokio::time::advance(Duration::from_secs(30)).await;
            transfer.record_failure(true);
            assert!(transfer.next_pause(&TUNING).is_some());
            transfer.reset();
        }
    }

    #[test]
    fn the_same_errors_are_retryable_as_in_the_providers_own_retries() {
        let with_status = |status: u16| {
            let response = http::Response::builder().status(status).body(String::new().into());
            is_retryable(&Ok(response.expect("a valid response")))
        };
        let with_error = |kind| is_retryable(&Err(HttpError::new(kind, std::fmt::Error)));
        assert_eq!([408, 429, 500, 503].map(with_status), [true; 4]);
        assert_eq!([301, 400, 403, 404, 409, 412].map(with_status), [false; 6]);
        assert!([HttpErrorKind::Connect, HttpErrorKind::Request].map(with_error) == [true; 2]);
        assert!([HttpErrorKind::Timeout, HttpErrorKind::Interrupted].map(with_error) == [true; 2]);
        assert!([HttpErrorKind::Decode, HttpErrorKind::Unknown].map(with_error) == [false; 2]);
    }
}
