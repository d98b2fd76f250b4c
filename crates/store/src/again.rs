//! What is begun again because it broke off although it moved.
//!
//! A provider's own retries count from the beginning of a request and are over after [`Tuning::give_up`], however well it went
//! until then: on a slow line that is sooner than a large body has gone out. What breaks later is begun anew here, signed anew
//! as well. Only the time in which nothing moved counts against `give_up`, so a dead store is given up as soon as ever.
//!
//! ```text
//!  try 1  ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇░░░ broke    ▇ bytes move     ░ they do not: the sum of these may be `give_up`
//!  pause                       ░░
//!  try 2                         ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇ stored
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind, HttpResponse};
use object_store::retry::{RetryContext, RetryPolicy};
use tokio::time::Instant;

use crate::Tuning;

/// Pauses are as long as those of the providers' own retries.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

tokio::task_local! {
    /// Whoever sends a request on behalf of a transfer finds it here: parts of an upload leave no other way to pass it on.
    static CURRENT: Arc<Course>;
}

/// How one transfer goes, over all its tries.
#[derive(Debug, Default)]
pub(crate) struct Course(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// How many tries failed in a way that may pass.
    failed: usize,
    /// Whether the last one did.
    may_pass: bool,
    /// How often it was begun again here.
    again: usize,
    /// How long nothing had moved, in all, before the present try.
    still: Duration,
    /// When something last moved, or the present try began. Nothing before the first one: signing takes its time, too.
    moved: Option<Instant>,
}

impl Course {
    /// The transfer that is being worked on; one that nobody asks about where there is none.
    pub(crate) fn current() -> Arc<Self> {
        CURRENT.try_with(Arc::clone).unwrap_or_default()
    }

    /// Does work for this transfer.
    pub(crate) async fn follow<F: Future>(self: &Arc<Self>, work: F) -> F::Output {
        CURRENT.scope(self.clone(), work).await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins.
    pub(crate) fn begin(&self) {
        let mut state = self.state();
        state.still = state.still_until_now();
        state.moved = Some(Instant::now());
    }

    /// Bytes have moved until then.
    pub(crate) fn moved(&self, until: Instant) {
        let mut state = self.state();
        state.moved = state.moved.max(Some(until));
    }

    /// A request has been answered, or not.
    pub(crate) fn judge(&self, answer: &Result<HttpResponse, HttpError>) {
        match answer {
            Ok(answer) if answer.status().is_success() => {
                self.state().may_pass = false;
                self.moved(Instant::now());
            }
            answer => self.failed(may_pass(answer)),
        }
    }

    /// A try has failed.
    pub(crate) fn failed(&self, may_pass: bool) {
        let mut state = self.state();
        state.failed += usize::from(may_pass);
        state.may_pass = may_pass;
    }

    /// What has come so far will not be asked for again: whatever follows is judged for itself.
    pub(crate) fn keep(&self) {
        let mut state = self.state();
        (state.failed, state.still) = (0, Duration::ZERO);
    }

    /// Whether what has failed is begun again; waits a little if so.
    pub(crate) async fn goes_on(&self, tuning: &Tuning) -> bool {
        let Some(pause) = self.decide(tuning) else { return false };
        tokio::time::sleep(pause).await;
        true
    }

    fn decide(&self, tuning: &Tuning) -> Option<Duration> {
        let mut state = self.state();
        if !state.may_pass || state.failed > tuning.retries || state.still_until_now() >= tuning.give_up {
            return None;
        }
        state.again += 1;
        let doublings = u32::try_from(state.failed.saturating_sub(1)).unwrap_or(u32::MAX);
        Some(FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_PAUSE))
    }

    /// How often it was tried in vain, if more than once and here.
    pub(crate) fn tries(&self) -> Option<usize> {
        let state = self.state();
        (state.again > 0).then_some(state.failed)
    }
}

impl State {
    fn still_until_now(&self) -> Duration {
        self.still + self.moved.map_or(Duration::ZERO, |moved| moved.elapsed())
    }
}

/// The same judgement that the providers' own retries make of whatever can be repeated.
fn may_pass(answer: &Result<HttpResponse, HttpError>) -> bool {
    use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
    match answer {
        Ok(answer) => answer.status().is_server_error() || matches!(answer.status().as_u16(), 408 | 429),
        Err(error) => matches!(error.kind(), Connect | Request | Timeout | Interrupted),
    }
}

/// Begins parts of an upload again. Each part must be sent by a task that follows a course of its own.
#[derive(Debug)]
pub(crate) struct PartsAgain(pub Tuning);

#[async_trait::async_trait]
impl RetryPolicy for PartsAgain {
    async fn retry(&self, _: RetryContext) -> bool {
        Course::current().goes_on(&self.0).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TUNING: Tuning = Tuning {
        idle: Duration::from_mins(1),
        connect: Duration::from_secs(10),
        retries: 10,
        give_up: Duration::from_mins(3),
    };

    /// Tries that each move for so many seconds, then stand still for so many, and fail. Is it begun again?
    async fn goes_on_after(tries: &[(u64, u64)], may_pass: bool) -> bool {
        let course = Course::default();
        tokio::time::advance(Duration::from_mins(10)).await;
        for &(moving, still) in tries {
            course.begin();
            tokio::time::advance(Duration::from_secs(moving)).await;
            course.moved(Instant::now());
            tokio::time::advance(Duration::from_secs(still)).await;
            course.failed(may_pass);
        }
        course.decide(&TUNING).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn what_moved_is_begun_again_and_what_did_not_is_given_up() {
        let table = [
            ("it broke after five minutes", vec![(300, 0)], true),
            ("it moved for five minutes and then no more", vec![(300, 60)], true),
            ("it broke late for the tenth time", vec![(300, 1); 10], true),
            ("it broke late once more", vec![(300, 1); 11], false),
            ("it broke at once as often as a provider tries", vec![(0, 1); 11], false),
            ("nobody was there for three minutes", vec![(0, 180)], false),
            ("somebody was there who took no more than buffers hold", vec![(1, 60); 3], false),
            ("it moved, and then nobody was there any more", vec![(300, 0), (0, 180)], false),
            ("it stood still for too long in all", vec![(300, 60); 3], false),
        ];
        for (what, tries, expected) in table {
            assert_eq!(goes_on_after(&tries, true).await, expected, "{what}");
        }
        assert!(!goes_on_after(&[(300, 0)], false).await, "a refusal does not pass");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_never_counted_again() {
        let course = Course::default();
        for _ in 0..100 {
            course.begin();
            tokio::time::advance(Duration::from_secs(30)).await;
            course.failed(true);
            assert!(course.decide(&TUNING).is_some());
            course.keep();
        }
    }

    #[test]
    fn the_same_failures_pass_that_the_providers_own_retries_take_for_such() {
        let answered = |status: u16| {
            let answer = http::Response::builder().status(status).body(String::new().into());
            may_pass(&Ok(answer.expect("an answer")))
        };
        let broken = |kind| may_pass(&Err(HttpError::new(kind, std::fmt::Error)));
        assert_eq!([408, 429, 500, 503].map(answered), [true; 4]);
        assert_eq!([301, 400, 403, 404, 409, 412].map(answered), [false; 6]);
        assert!([HttpErrorKind::Connect, HttpErrorKind::Request].map(broken) == [true; 2]);
        assert!([HttpErrorKind::Timeout, HttpErrorKind::Interrupted].map(broken) == [true; 2]);
        assert!([HttpErrorKind::Decode, HttpErrorKind::Unknown].map(broken) == [false; 2]);
    }
}
