//! Whether activity gains anything: the difference between work, retries and a trickle.
//!
//! ```text
//!   gain        counters and totals that change, new bytes that move, a sign of life of work that has nothing to count
//!   no gain     waits that begin and end, data that is sent again, names that change while a counter stands still
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use crate::counts::{Counts, Unit};
use crate::rate::as_f64;
use crate::stall::Cadence;

/// So long may a task be active without a gain, or below its usual rate. It is named within five minutes.
const GAIN_LIMIT: Duration = Duration::from_mins(4);
/// So many of its own intervals between gains a task may miss, if that is longer.
const GAIN_FACTOR: u32 = 3;
/// Rates are compared over this time.
const BUCKET: Duration = Duration::from_secs(10);
/// So many usual rates are remembered.
const MAX_RATES: usize = 61;
/// No median is told from less.
const MIN_RATES: usize = 3;
/// Below this share of its own median rate a task crawls.
const CRAWL_SHARE: f64 = 0.01;
/// A transfer that was never faster is measured by this rate, in bytes a second: a trickle from the start is one, too.
const LEAST_USUAL_BYTES: f64 = 102_400.0;
/// So much input and output may precede the next count: what is being stored is counted once it is stored.
const LEAST_UNCOUNTED: u64 = 128 << 20;
/// From a terabyte on, a program that prints one decimal counts in steps of up to a tenth of what it has done.
const COARSE_FROM: u64 = 1_000_000_000_000;
const COARSE_SHARE: u64 = 8;

/// What a task says about its activity, besides its counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Activity {
    /// Its last sign of life that is a gain.
    pub(crate) gained: Duration,
    /// When it last named something new to work on. A gain only where nothing is counted.
    pub(crate) named: Duration,
    /// New bytes that moved for something that is counted later.
    pub(crate) moved: u64,
    /// Input and output of the process, whatever it is for.
    pub(crate) process_bytes: u64,
}

/// What has changed in the counters of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// What is settled.
    Settled,
    /// A total: the work is still being measured.
    Totals,
}

/// What is remembered about the gains of one task.
#[derive(Debug, Default)]
pub(crate) struct GainTracker {
    seen: Option<Seen>,
    last: Gains,
    cadence: Cadence,
    paces: Vec<Pace>,
}

/// The activity at the last look, and the process's bytes at the last gain.
#[derive(Clone, Copy, Debug)]
struct Seen {
    activity: Activity,
    process_bytes_at_gain: u64,
}

/// When a task last gained, and when it last did so at its usual rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gains {
    pub(crate) gained: Duration,
    pub(crate) usual: Duration,
    /// It has gained since it began. What has only begun is no gain of the task above.
    pub(crate) has_gained: bool,
}

impl Gains {
    /// The gains of a task together with those of one below it.
    pub(crate) fn and(self, below: Option<Self>) -> Self {
        match below.filter(|below| below.has_gained) {
            None => self,
            Some(below) => {
                Self { gained: self.gained.max(below.gained), usual: self.usual.max(below.usual), has_gained: true }
            }
        }
    }
}

impl GainTracker {
    /// Notes what has changed since the last look. While a task is `exempt`, its silence means nothing.
    pub(crate) fn observe(
        &mut self,
        now: Duration,
        counts: &[Counts],
        change: Change,
        activity: Activity,
        exempt: bool,
    ) -> Gains {
        let Some(mut seen) = self.seen else {
            self.seen = Some(Seen { activity, process_bytes_at_gain: activity.process_bytes });
            self.last = Gains { gained: now, usual: now, has_gained: false };
            self.restart_paces(now, counts, activity);
            return self.last;
        };
        let is_counting = counts.iter().any(is_partial);
        let signalled =
            activity.gained > seen.activity.gained || (!is_counting && activity.named > seen.activity.named);
        let moved = activity.moved > seen.activity.moved || has_uncounted_gain(&seen, activity, counts, is_counting);
        if exempt || signalled || change != Change::None || moved {
            let (gap, limit) = (now.saturating_sub(self.last.gained), self.limit());
            if !exempt {
                self.cadence.note(gap, limit);
            }
            // It goes on: its rate is compared from here.
            if gap >= limit {
                self.last.usual = now;
                self.restart_paces(now, counts, activity);
            }
            (self.last.gained, self.last.has_gained) = (now, true);
        }
        if exempt || change != Change::None {
            seen.process_bytes_at_gain = activity.process_bytes;
        }
        if exempt || signalled || change == Change::Totals {
            self.last.usual = now;
            self.restart_paces(now, counts, activity);
        } else if self.is_usual(now, counts, activity) {
            self.last.usual = now;
        }
        self.seen = Some(Seen { activity, ..seen });
        self.last
    }

    /// The gains so far, of a task that is not at work.
    pub(crate) fn last(&self) -> Gains {
        self.last
    }

    /// How long it may go without a gain.
    pub(crate) fn limit(&self) -> Duration {
        let own = self.cadence.usual().map_or(Duration::ZERO, |usual| usual.saturating_mul(GAIN_FACTOR));
        GAIN_LIMIT.max(own)
    }

    /// Its usual rate: that of the first counter that has one.
    pub(crate) fn usual_rate(&self) -> Option<(f64, Unit)> {
        self.paces.iter().find_map(|pace| Some((pace.median?, pace.unit)))
    }

    fn restart_paces(&mut self, now: Duration, counts: &[Counts], activity: Activity) {
        for (index, (unit, settled)) in counted(counts, activity).enumerate() {
            self.pace(index, unit).restart(now, settled);
        }
    }

    /// Whether any of its counters goes at its usual rate. Nothing is known in the middle of a bucket.
    fn is_usual(&mut self, now: Duration, counts: &[Counts], activity: Activity) -> bool {
        let mut usual = false;
        for (index, (unit, settled)) in counted(counts, activity).enumerate() {
            usual |= self.pace(index, unit).observe(now, settled);
        }
        usual
    }

    fn pace(&mut self, index: usize, unit: Unit) -> &mut Pace {
        if self.paces.len() <= index {
            self.paces.resize_with(index + 1, || Pace::new(unit));
        }
        let pace = &mut self.paces[index];
        pace.unit = unit;
        pace
    }
}

/// What a task counts, then the bytes that move besides. The order of a task's meters never changes.
fn counted(counts: &[Counts], activity: Activity) -> impl Iterator<Item = (Unit, u64)> {
    let besides = [activity.moved, activity.process_bytes].map(|bytes| (Unit::Bytes, bytes));
    besides.into_iter().chain(counts.iter().map(|counts| (counts.unit, counts.settled())))
}

/// Whether a counter is between its start and its end.
fn is_partial(counts: &Counts) -> bool {
    counts.settled() > 0 && counts.remaining() != Some(0)
}

/// Whether the process has moved bytes that may still be counted: as much as can precede the next count.
fn has_uncounted_gain(seen: &Seen, activity: Activity, counts: &[Counts], is_counting: bool) -> bool {
    let settled = counts.iter().filter(|counts| counts.unit.is_bytes()).map(Counts::settled).max().unwrap_or(0);
    let room = if settled < COARSE_FROM { LEAST_UNCOUNTED } else { settled / COARSE_SHARE };
    activity.process_bytes > seen.activity.process_bytes
        && (!is_counting || activity.process_bytes - seen.process_bytes_at_gain <= room)
}

/// The usual rate of one counter.
#[derive(Debug)]
struct Pace {
    unit: Unit,
    from: Duration,
    settled: u64,
    rates: VecDeque<f64>,
    median: Option<f64>,
}

impl Pace {
    fn new(unit: Unit) -> Self {
        Self { unit, from: Duration::ZERO, settled: 0, rates: VecDeque::new(), median: None }
    }

    fn restart(&mut self, now: Duration, settled: u64) {
        (self.from, self.settled) = (now, settled);
    }

    /// Whether the bucket that ends now was as fast as usual. Only usual rates are remembered: one crawl teaches no other.
    fn observe(&mut self, now: Duration, settled: u64) -> bool {
        let elapsed = now.saturating_sub(self.from);
        if elapsed < BUCKET {
            return false;
        }
        let rate = as_f64(settled.saturating_sub(self.settled)) / elapsed.as_secs_f64();
        self.restart(now, settled);
        if rate <= 0.0 || rate < CRAWL_SHARE * self.reference() {
            return false;
        }
        self.note(rate);
        true
    }

    fn reference(&self) -> f64 {
        let least = if self.unit.is_bytes() { LEAST_USUAL_BYTES } else { 0.0 };
        self.median.unwrap_or(0.0).max(least)
    }

    fn note(&mut self, rate: f64) {
        if self.rates.len() == MAX_RATES {
            self.rates.pop_front();
        }
        self.rates.push_back(rate);
        if self.rates.len() >= MIN_RATES {
            let mut sorted: Vec<f64> = self.rates.iter().copied().collect();
            sorted.sort_by(f64::total_cmp);
            self.median = Some(sorted[sorted.len() / 2]);
        }
    }
}
