//! The pace of a whole run: how fast it has gone for as long as it has gone like this.
//!
//! A fixed window is too short for work that comes in bursts and too long for work that has just become slower. This one
//! reaches back as far as the speed was the same, as well as its own noise lets one tell. A speed that has changed once is the
//! new speed; one that has changed several times will change again, so the whole run counts too. One that drifts never clearly
//! changes, so what was lately counts twice.

use std::time::Duration;

/// So many points at most: when they are full, every other one goes, and the steps between them become twice as long.
const MAX_POINTS: usize = 48;
/// The first step between two points.
const FIRST_STEP: Duration = Duration::from_secs(1);
/// A longer silence than this is a pause and says nothing about the speed, unless pauses are its way.
const PAUSE: Duration = Duration::from_secs(30);
/// After this long without a move nothing is said, unless such silences are its way.
const MAX_SILENCE: Duration = Duration::from_secs(10);
/// So many pauses, and they are its way: from then on they count as time it needs.
const REGULAR_PAUSES: u32 = 3;
/// A speed is told from at least so many steps.
const MIN_STEPS: usize = 3;
/// What was lately is this part of the stretch, and no less than this long: less is noise.
const RECENT_PART: u32 = 4;
const RECENT_PERIOD: Duration = Duration::from_secs(30);
/// Speeds that differ by less than this share are the same.
const MAX_SPEED_DIFFERENCE: f64 = 0.3;
/// Speeds that differ by more than this many times their common noise are not.
const MIN_SIGNIFICANCE: f64 = 8.0;

#[derive(Clone, Copy, Debug)]
struct Point {
    /// Time at work: pauses are taken out.
    at: Duration,
    settled: u64,
}

/// A speed and how far it may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speed {
    /// Units a second.
    pub(crate) rate: f64,
    /// The standard error of the rate and its drift, as a share of it.
    pub(crate) doubt: f64,
    /// For how long it has been so, in seconds.
    pub(crate) seconds: f64,
}

/// The points of a run, as far back as its speed was the same.
#[derive(Debug)]
pub(crate) struct Pace {
    points: Vec<Point>,
    step: Duration,
    /// When it last moved, on the clock.
    moved: Duration,
    /// Pauses, all together.
    paused: Duration,
    pauses: u32,
    longest_pause: Duration,
    /// Where it began, and how often its speed has changed since.
    first: Option<Point>,
    changes: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            points: Vec::new(),
            step: FIRST_STEP,
            moved: Duration::ZERO,
            paused: Duration::ZERO,
            pauses: 0,
            longest_pause: Duration::ZERO,
            first: None,
            changes: 0,
        }
    }
}

impl Pace {
    /// Takes a reading. One that shows nothing new only lets time pass.
    pub(crate) fn push(&mut self, now: Duration, settled: u64) {
        let Some(newest) = self.points.last().copied() else {
            self.moved = now;
            self.first = Some(Point { at: now, settled });
            self.points.extend(self.first);
            return;
        };
        if settled <= newest.settled {
            return;
        }
        self.take_out_pause(now);
        self.moved = now;
        let point = Point { at: now.saturating_sub(self.paused), settled };
        let len = self.points.len();
        // The newest point is provisional until it is a step away from the one before it.
        if len >= 2 && self.points[len - 1].at.saturating_sub(self.points[len - 2].at) < self.step {
            self.points[len - 1] = point;
            return;
        }
        self.points.push(point);
        self.forget_other_speeds();
        if self.points.len() >= MAX_POINTS {
            self.thin_out();
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// A pause says nothing about the speed, until it is clear that pauses are the way this work goes.
    fn take_out_pause(&mut self, now: Duration) {
        let silence = self.silence(now);
        if silence <= MAX_SILENCE {
            return;
        }
        self.pauses += 1;
        self.longest_pause = self.longest_pause.max(silence);
        if silence > PAUSE && self.pauses < REGULAR_PAUSES {
            self.paused += silence.saturating_sub(self.step);
        }
    }

    /// Whether it stands still for longer than is its way: then nothing can be said.
    pub(crate) fn stands_still(&self, now: Duration) -> bool {
        let usual =
            if self.pauses < REGULAR_PAUSES { MAX_SILENCE } else { self.longest_pause + self.longest_pause / 2 };
        self.silence(now) > usual
    }

    /// How long ago it last moved.
    pub(crate) fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.moved)
    }

    /// Every other point goes; the first and the newest stay.
    fn thin_out(&mut self) {
        let newest = self.points.len() - 1;
        let mut index = 0;
        self.points.retain(|_| {
            index += 1;
            (index - 1) % 2 == 0 || index - 1 == newest
        });
        self.step *= 2;
    }

    /// Drops what lies before the clearest change of speed, if there is a clear one.
    fn forget_other_speeds(&mut self) {
        if let Some(change) = self.clearest_change() {
            self.points.drain(..change);
            self.changes += 1;
        }
    }

    fn clearest_change(&self) -> Option<usize> {
        // The newest point is provisional.
        let points = &self.points[..self.points.len() - 1];
        let last = points.len().checked_sub(1)?;
        let steps = Steps::of(points);
        let mut best = None;
        for split in 2..=last.saturating_sub(MIN_STEPS) {
            let before = steps.stretch(0, split);
            let after = steps.stretch(split, last);
            let clear = before.differs_from(&after);
            if clear > MIN_SIGNIFICANCE && best.is_none_or(|(most, _)| clear > most) {
                best = Some((clear, split));
            }
        }
        best.map(|(_, split)| split)
    }

    /// The speed now, once there is something to tell it from.
    pub(crate) fn speed(&self, now: Duration, shortest: Duration) -> Option<Speed> {
        let last = self.points.len().checked_sub(1)?;
        let (oldest, newest) = (self.points[0], self.points[last]);
        // What has passed since it last moved is time it needed, too.
        let at = now.saturating_sub(self.paused).max(newest.at);
        let seconds = at.saturating_sub(oldest.at);
        if seconds < shortest || newest.settled == oldest.settled {
            return None;
        }
        let (seconds, now) = (seconds.as_secs_f64(), Point { at, ..newest });
        let throughout = self.with_whole_run(amount(oldest, newest) / seconds, seconds, now);
        let rate = self.lately(now).map_or(throughout, |lately| throughout.midpoint(lately));
        let drift = (rate - throughout).abs() / rate;
        Some(Speed { rate, doubt: Steps::of(&self.points).stretch(0, last).doubt() + drift, seconds })
    }
}

impl Pace {
    /// The speed of the last stretch, and that of the whole run beside it if the speed has changed more than once: the longer
    /// the stretch is already, compared with those before it, the less the whole run counts.
    fn with_whole_run(&self, rate: f64, seconds: f64, now: Point) -> f64 {
        let Some(first) = self.first.filter(|_| self.changes > 1) else { return rate };
        let whole = span(first, now);
        let usual = whole / f64::from(self.changes + 1);
        let share = seconds / (seconds + usual);
        share * rate + (1.0 - share) * amount(first, now) / whole
    }

    /// The speed of the end of the stretch, if the stretch is longer than that.
    fn lately(&self, now: Point) -> Option<f64> {
        let stretch = now.at.saturating_sub(self.points.first()?.at);
        let edge = now.at.checked_sub((stretch / RECENT_PART).max(RECENT_PERIOD))?;
        let from = *self.points.iter().rfind(|point| point.at <= edge)?;
        Some(amount(from, now) / span(from, now))
    }
}

fn amount(from: Point, to: Point) -> f64 {
    crate::rate::as_f64(to.settled.saturating_sub(from.settled))
}

fn span(from: Point, to: Point) -> f64 {
    to.at.saturating_sub(from.at).as_secs_f64()
}

/// The steps between points, and what is needed to tell their noise.
struct Steps<'a> {
    points: &'a [Point],
    /// Running sums of rate² × time, from which the noise of any stretch of them follows.
    squares: Vec<f64>,
    /// Work that comes in bursts is slow or fast for several steps on end, so that a single step says less than it seems to:
    /// so many of them are looked at together, too.
    block: usize,
}

impl<'a> Steps<'a> {
    fn of(points: &'a [Point]) -> Self {
        let mut sum = 0.0;
        let mut squares = Vec::with_capacity(points.len());
        squares.push(0.0);
        for pair in points.windows(2) {
            let (amount, span) = (amount(pair[0], pair[1]), span(pair[0], pair[1]));
            sum += if span > 0.0 { amount * amount / span } else { 0.0 };
            squares.push(sum);
        }
        Self { points, squares, block: (points.len() / 8).max(1) }
    }

    fn rate(&self, from: usize, to: usize) -> f64 {
        let seconds = span(self.points[from], self.points[to]);
        if seconds > 0.0 { amount(self.points[from], self.points[to]) / seconds } else { 0.0 }
    }

    fn stretch(&self, from: usize, to: usize) -> Stretch {
        let (rate, seconds) = (self.rate(from, to), span(self.points[from], self.points[to]));
        let steps = crate::rate::as_f64(u64::try_from(to - from).unwrap_or(u64::MAX));
        let single = if seconds > 0.0 { (self.squares[to] - self.squares[from]) / seconds - rate * rate } else { 0.0 };
        Stretch { rate, variance: single.max(0.0).max(self.variance_of_blocks(from, to, rate)), steps }
    }

    /// What the noise of one step would be if those of a block were independent; of blocks as far as there are two.
    fn variance_of_blocks(&self, from: usize, to: usize, rate: f64) -> f64 {
        let (mut sum, mut count, mut end) = (0.0, 0.0, to);
        while end >= from + self.block {
            sum += (self.rate(end - self.block, end) - rate).powi(2);
            count += 1.0;
            end -= self.block;
        }
        let block = crate::rate::as_f64(u64::try_from(self.block).unwrap_or(u64::MAX));
        if count >= 2.0 { sum / (count - 1.0) * block } else { 0.0 }
    }
}

/// Some steps in a row.
struct Stretch {
    rate: f64,
    /// The variance of the rates of its steps.
    variance: f64,
    steps: f64,
}

impl Stretch {
    /// The standard error of the rate, as a share of it.
    fn doubt(&self) -> f64 {
        if self.rate <= 0.0 || self.steps < 1.0 { 1.0 } else { (self.variance / self.steps).sqrt() / self.rate }
    }

    /// By how many times their common noise two speeds differ; 0 if they are the same for all that matters.
    fn differs_from(&self, other: &Self) -> f64 {
        let difference = (self.rate - other.rate).abs();
        let greater = self.rate.max(other.rate);
        if greater <= 0.0 || difference < MAX_SPEED_DIFFERENCE * greater {
            return 0.0;
        }
        let noise = self.variance / self.steps + other.variance / other.steps;
        difference / (noise + (0.02 * greater).powi(2)).sqrt()
    }
}
