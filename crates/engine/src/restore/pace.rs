//! How many requests are under way at once: as many as the API server takes well.
//!
//! Additive increase, multiplicative decrease: one more for every round of good answers, half as many after a refusal (429), a
//! little fewer while answers take many times longer than they did at their best.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

const LEAST: usize = 4;
const FIRST: usize = 32;
/// As many items are looked at at once.
pub(super) const MOST: usize = 64;
/// After a decrease the answers to what was under way say nothing new.
const SETTLING: Duration = Duration::from_millis(500);
/// Answers that take so much longer than the best ones mean that requests queue up inside.
const SLOWER: f64 = 8.0;
/// Below this nobody minds.
const QUICK: Duration = Duration::from_millis(250);

/// The rule: pure, with the time given.
#[derive(Debug)]
struct Rule {
    limit: usize,
    good: usize,
    typical: f64,
    best: f64,
    changed: Option<Instant>,
    /// Permits that are out and should not come back.
    owed: usize,
}

impl Rule {
    fn new() -> Self {
        Self { limit: FIRST, good: 0, typical: 0.0, best: f64::MAX, changed: None, owed: 0 }
    }

    /// Takes in an answer; the limit changes with it.
    fn answered(&mut self, refused: bool, took: Duration, now: Instant) {
        if refused {
            return self.decrease(self.limit / 2, now);
        }
        let took = took.as_secs_f64();
        self.typical = if self.typical == 0.0 { took } else { self.typical * 0.9 + took * 0.1 };
        self.best = self.best.min(self.typical);
        if self.typical > QUICK.as_secs_f64() && self.typical > self.best * SLOWER {
            return self.decrease(self.limit * 9 / 10, now);
        }
        self.good += 1;
        if self.good >= self.limit {
            self.good = 0;
            self.limit = (self.limit + 1).min(MOST);
        }
    }

    fn decrease(&mut self, limit: usize, now: Instant) {
        if self.changed.is_some_and(|at| now.duration_since(at) < SETTLING) {
            return;
        }
        self.limit = limit.max(LEAST);
        self.good = 0;
        self.changed = Some(now);
    }
}

/// Lets requests through.
pub(super) struct Pace {
    permits: Semaphore,
    rule: Mutex<Rule>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { permits: Semaphore::new(FIRST), rule: Mutex::new(Rule::new()) }
    }

    /// Waits for one's turn. Nobody may wait for anything else while holding the result but its one request.
    pub(super) async fn enter(&self) -> Turn<'_> {
        let permit = self.permits.acquire().await.ok();
        Turn { pace: self, permit, started: Instant::now() }
    }

    /// How many may be under way.
    #[cfg(test)]
    fn limit(&self) -> usize {
        self.rule.lock().unwrap_or_else(PoisonError::into_inner).limit
    }
}

/// One request under way.
pub(super) struct Turn<'a> {
    pace: &'a Pace,
    permit: Option<SemaphorePermit<'a>>,
    started: Instant,
}

impl Turn<'_> {
    /// Ends it and learns from it.
    pub(super) fn answered(mut self, refused: bool) {
        let mut rule = self.pace.rule.lock().unwrap_or_else(PoisonError::into_inner);
        let before = rule.limit;
        rule.answered(refused, self.started.elapsed(), Instant::now());
        if rule.limit < before {
            rule.owed += before - rule.limit;
            rule.owed -= self.pace.permits.forget_permits(rule.owed);
        }
        let more = rule.limit.saturating_sub(before);
        let kept_back = more.min(rule.owed);
        rule.owed -= kept_back;
        self.pace.permits.add_permits(more - kept_back);
        // Requests that are under way cannot be taken back: each gives up its permit when it ends, until the limit holds.
        if rule.owed > 0
            && let Some(permit) = self.permit.take()
        {
            rule.owed -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rule: &mut Rule, times: usize, refused: bool, took: Duration, now: Instant) {
        for _ in 0..times {
            rule.answered(refused, took, now);
        }
    }

    #[tokio::test]
    async fn good_answers_raise_the_limit_by_one_a_round_up_to_the_most() {
        let (mut rule, now) = (Rule::new(), Instant::now());
        answer(&mut rule, FIRST, false, Duration::from_millis(10), now);
        assert_eq!(rule.limit, FIRST + 1);
        answer(&mut rule, 10_000, false, Duration::from_millis(10), now);
        assert_eq!(rule.limit, MOST);
    }

    #[tokio::test]
    async fn a_refusal_halves_it_once_and_never_below_the_least() {
        let (mut rule, mut now) = (Rule::new(), Instant::now());
        answer(&mut rule, 20, true, Duration::ZERO, now);
        assert_eq!(rule.limit, FIRST / 2, "refusals of what was under way count once");
        for _ in 0..10 {
            now += SETTLING;
            rule.answered(true, Duration::ZERO, now);
        }
        assert_eq!(rule.limit, LEAST);
    }

    #[tokio::test]
    async fn answers_that_take_much_longer_than_at_their_best_lower_it() {
        let (mut rule, now) = (Rule::new(), Instant::now());
        answer(&mut rule, 30, false, Duration::from_millis(20), now);
        answer(&mut rule, 30, false, Duration::from_secs(2), now);
        assert!(rule.limit < FIRST, "{rule:?}");
    }

    #[tokio::test]
    async fn steady_latency_costs_nothing() {
        let (mut rule, now) = (Rule::new(), Instant::now());
        answer(&mut rule, 1000, false, Duration::from_millis(400), now);
        assert!(rule.limit > FIRST);
    }

    #[tokio::test]
    async fn permits_follow_the_limit() {
        let pace = Pace::new();
        let mut turns = Vec::new();
        for _ in 0..FIRST {
            turns.push(pace.enter().await);
        }
        for turn in turns {
            turn.answered(true);
        }
        assert_eq!((pace.limit(), pace.permits.available_permits()), (FIRST / 2, FIRST / 2));
        pace.enter().await.answered(false);
        assert_eq!(pace.permits.available_permits(), FIRST / 2);
    }
}
