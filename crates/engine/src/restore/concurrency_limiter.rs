//! Limits the number of concurrent requests to what the API server can handle.
//!
//! Additive increase, multiplicative decrease: one more after every round of successful requests, half as many after status 429,
//! a little fewer while the latency is many times the best one.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

const MIN_CONCURRENCY: usize = 4;
const INITIAL_CONCURRENCY: usize = 32;
/// Also the number of items that are processed in parallel.
pub(super) const MAX_CONCURRENCY: usize = 64;
/// After a decrease, responses to earlier requests do not decrease the limit again.
const DECREASE_INTERVAL: Duration = Duration::from_millis(500);
/// Latency, as a multiple of the best one, at which requests queue up inside the API server.
const MAX_LATENCY_RATIO: f64 = 8.0;
/// Latency below this is acceptable.
const ACCEPTABLE_LATENCY: Duration = Duration::from_millis(250);

/// The state of the algorithm, without a clock.
#[derive(Debug)]
struct LimitState {
    limit: usize,
    successes: usize,
    average: f64,
    best: f64,
    changed: Option<Instant>,
    /// Permits in use that are to be dropped when they are returned.
    excess: usize,
}

impl LimitState {
    fn new() -> Self {
        Self { limit: INITIAL_CONCURRENCY, successes: 0, average: 0.0, best: f64::MAX, changed: None, excess: 0 }
    }

    /// Adapts the limit to a response.
    fn complete(&mut self, throttled: bool, latency: Duration, now: Instant) {
        if throttled {
            return self.decrease(self.limit / 2, now);
        }
        let latency = latency.as_secs_f64();
        self.average = if self.average == 0.0 { latency } else { self.average * 0.9 + latency * 0.1 };
        self.best = self.best.min(self.average);
        if self.average > ACCEPTABLE_LATENCY.as_secs_f64() && self.average > self.best * MAX_LATENCY_RATIO {
            return self.decrease(self.limit * 9 / 10, now);
        }
        self.successes += 1;
        if self.successes >= self.limit {
            self.successes = 0;
            self.limit = (self.limit + 1).min(MAX_CONCURRENCY);
        }
    }

    fn decrease(&mut self, limit: usize, now: Instant) {
        if self.changed.is_some_and(|at| now.duration_since(at) < DECREASE_INTERVAL) {
            return;
        }
        self.limit = limit.max(MIN_CONCURRENCY);
        self.successes = 0;
        self.changed = Some(now);
    }
}

/// Limits concurrent requests.
pub(super) struct ConcurrencyLimiter {
    permits: Semaphore,
    state: Mutex<LimitState>,
}

impl ConcurrencyLimiter {
    pub(super) fn new() -> Self {
        Self { permits: Semaphore::new(INITIAL_CONCURRENCY), state: Mutex::new(LimitState::new()) }
    }

    /// Waits for a permit. The holder must wait for nothing but its request.
    pub(super) async fn acquire(&self) -> RequestPermit<'_> {
        let permit = self.permits.acquire().await.ok();
        RequestPermit { limiter: self, permit, started: Instant::now() }
    }

    /// The current limit.
    #[cfg(test)]
    fn limit(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).limit
    }
}

/// The permit of one request.
pub(super) struct RequestPermit<'a> {
    limiter: &'a ConcurrencyLimiter,
    permit: Option<SemaphorePermit<'a>>,
    started: Instant,
}

impl RequestPermit<'_> {
    /// Returns the permit and adapts the limit.
    pub(super) fn complete(mut self, throttled: bool) {
        let mut state = self.limiter.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.limit;
        state.complete(throttled, self.started.elapsed(), Instant::now());
        if state.limit < before {
            state.excess += before - state.limit;
            state.excess -= self.limiter.permits.forget_permits(state.excess);
        }
        let more = state.limit.saturating_sub(before);
        let kept_back = more.min(state.excess);
        state.excess -= kept_back;
        self.limiter.permits.add_permits(more - kept_back);
        // Permits in use cannot be revoked: each is dropped when its request ends, until the limit holds.
        if state.excess > 0
            && let Some(permit) = self.permit.take()
        {
            state.excess -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(state: &mut LimitState, times: usize, throttled: bool, latency: Duration, now: Instant) {
        for _ in 0..times {
            state.complete(throttled, latency, now);
        }
    }

    #[tokio::test]
    async fn successful_requests_raise_the_limit_by_one_a_round() {
        let (mut state, now) = (LimitState::new(), Instant::now());
        answer(&mut state, INITIAL_CONCURRENCY, false, Duration::from_millis(10), now);
        assert_eq!(state.limit, INITIAL_CONCURRENCY + 1);
        answer(&mut state, 10_000, false, Duration::from_millis(10), now);
        assert_eq!(state.limit, MAX_CONCURRENCY);
    }

    #[tokio::test]
    async fn status_429_halves_the_limit_once() {
        let (mut state, mut now) = (LimitState::new(), Instant::now());
        answer(&mut state, 20, true, Duration::ZERO, now);
        assert_eq!(state.limit, INITIAL_CONCURRENCY / 2, "responses to earlier requests count once");
        for _ in 0..10 {
            now += DECREASE_INTERVAL;
            state.complete(true, Duration::ZERO, now);
        }
        assert_eq!(state.limit, MIN_CONCURRENCY);
    }

    #[tokio::test]
    async fn high_latency_lowers_the_limit() {
        let (mut state, now) = (LimitState::new(), Instant::now());
        answer(&mut state, 30, false, Duration::from_millis(20), now);
        answer(&mut state, 30, false, Duration::from_secs(2), now);
        assert!(state.limit < INITIAL_CONCURRENCY, "{state:?}");
    }

    #[tokio::test]
    async fn constant_latency_does_not_lower_the_limit() {
        let (mut state, now) = (LimitState::new(), Instant::now());
        answer(&mut state, 1000, false, Duration::from_millis(400), now);
        assert!(state.limit > INITIAL_CONCURRENCY);
    }

    #[tokio::test]
    async fn permits_follow_the_limit() {
        let limiter = ConcurrencyLimiter::new();
        let mut permits = Vec::new();
        for _ in 0..INITIAL_CONCURRENCY {
            permits.push(limiter.acquire().await);
        }
        for request_permit in permits {
            request_permit.complete(true);
        }
        assert_eq!(
            (limiter.limit(), limiter.permits.available_permits()),
            (INITIAL_CONCURRENCY / 2, INITIAL_CONCURRENCY / 2)
        );
        limiter.acquire().await.complete(false);
        assert_eq!(limiter.permits.available_permits(), INITIAL_CONCURRENCY / 2);
    }
}
