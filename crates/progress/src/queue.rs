//! Transfers that wait for their turn: when the last one will have ended.
//!
//! Each node of the cluster runs so many transfers at a time; the others of that node wait. What is known about a transfer is, best
//! first, its own pace, the pace of the others on its node, that of the others anywhere, and what was planned.

use std::sync::Arc;

use crate::estimate::{Estimate, SHARED, Z90};
use crate::history::TransferRate;
use crate::work::{Basis, Source, Work};

/// Draws of a simulation: enough for p10 and p90.
const MAX_DRAWS: usize = 41;
const MIN_DRAWS: usize = 9;
/// All draws together look at no more transfers than this.
const MAX_STEPS: usize = 40_000;

/// One transfer.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Its place among the nodes of the tree.
    pub(crate) place: usize,
    /// Where it runs.
    pub(crate) runs_on: Option<Arc<str>>,
    pub(crate) state: JobState,
    /// By its own pace.
    pub(crate) own: Option<Estimate>,
    pub(crate) work: Option<Work>,
    /// What is settled of it, and how much there is, if it is known.
    pub(crate) settled: f64,
    pub(crate) total: Option<f64>,
    /// For how long it has been at work, or how long it took.
    pub(crate) elapsed: f64,
}

/// Where a transfer is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    /// Waits for its turn.
    Queued,
    /// At work.
    Active,
    /// Ended well.
    Done,
    /// Ended badly: nothing is left of it, and it says nothing about the others.
    Lost,
}

/// How long the queue will take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outlook {
    pub(crate) estimate: Estimate,
    /// The place of the transfer that ends last.
    pub(crate) last: usize,
}

/// When the last transfer will have ended; nothing if one of them is unknown.
pub(crate) fn outlook(jobs: &[Job], slots: usize) -> Option<Outlook> {
    let learned = Learned::of(jobs);
    let is_open = |job: &&Job| matches!(job.state, JobState::Active | JobState::Queued);
    let open: Option<Vec<Planned<'_>>> = jobs.iter().filter(is_open).map(|job| learned.plan(job)).collect();
    let open = open.filter(|open| !open.is_empty())?;
    let lanes = lanes(&open, slots.max(1));
    let draws = (MAX_STEPS / open.len()).clamp(MIN_DRAWS, MAX_DRAWS);
    let mut ends: Vec<(f64, usize)> = (0..draws).map(|draw| simulate(&open, &lanes, draw, draws)).collect();
    ends.sort_by(|one, other| one.0.total_cmp(&other.0));
    let at = |share: f64| ends[rounded(share * count(draws - 1))];
    let (low, (median, last), high) = (at(0.1).0, at(0.5), at(0.9).0);
    let sigma = if low > 0.0 { (high / low).ln() / (2.0 * Z90) } else { 0.0 };
    let seconds: f64 = open.iter().map(|job| job.estimate.median).sum();
    let assumed: f64 = open.iter().map(|job| job.estimate.assumed).sum();
    let assumed = if seconds > 0.0 { median * assumed / seconds } else { 0.0 };
    let last = &open[last];
    let estimate = Estimate { median, sigma, source: last.estimate.source, assumed };
    Some(Outlook { estimate, last: last.job.place })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place among at most 41 draws")]
fn rounded(place: f64) -> usize {
    place.round() as usize
}

fn count(of: usize) -> f64 {
    u32::try_from(of).map_or(f64::from(u32::MAX), f64::from)
}

/// An open transfer and how long it will take by itself.
struct Planned<'a> {
    job: &'a Job,
    estimate: Estimate,
}

/// The transfers of one node: those at work, and those that wait, in their order.
struct Lane {
    active: Vec<usize>,
    queued: Vec<usize>,
    slots: usize,
}

fn lanes(open: &[Planned<'_>], slots: usize) -> Vec<Lane> {
    let mut names: Vec<Option<&Arc<str>>> = Vec::new();
    let mut lanes: Vec<Lane> = Vec::new();
    for (index, planned) in open.iter().enumerate() {
        let name = planned.job.runs_on.as_ref();
        let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            // Where a transfer will run is not known: then it is not known either what it has to wait for.
            let slots = if name.is_some() { slots } else { usize::MAX };
            lanes.push(Lane { active: Vec::new(), queued: Vec::new(), slots });
            lanes.len() - 1
        });
        let active = planned.job.state == JobState::Active;
        let lane = &mut lanes[at];
        if active { lane.active.push(index) } else { lane.queued.push(index) }
    }
    for lane in &mut lanes {
        // While some wait, those at work are as many as may be: what is seen counts more than what was configured.
        if !lane.active.is_empty() && !lane.queued.is_empty() {
            lane.slots = lane.active.len();
        }
    }
    lanes
}

/// One possible future: when the last transfer ends, and which one it is.
fn simulate(open: &[Planned<'_>], lanes: &[Lane], draw: usize, draws: usize) -> (f64, usize) {
    let shared = normal_quantile((count(draw) + 0.5) / count(draws));
    let seconds = |index: usize| {
        let Estimate { median, sigma, .. } = open[index].estimate;
        let own = normal_quantile(scattered(index, draw));
        median * (sigma * (SHARED * shared + (1.0 - SHARED * SHARED).sqrt() * own)).exp()
    };
    let mut last = (0.0, 0);
    for lane in lanes {
        let mut free: Vec<f64> = Vec::with_capacity(lane.slots.min(lane.active.len() + lane.queued.len()));
        for index in &lane.active {
            let end = seconds(*index);
            free.push(end);
            last = later(last, (end, *index));
        }
        free.resize(free.len().max(lane.slots.min(lane.active.len() + lane.queued.len())), 0.0);
        for index in &lane.queued {
            let Some(slot) = free.iter_mut().min_by(|one, other| one.total_cmp(other)) else { continue };
            *slot += seconds(*index);
            last = later(last, (*slot, *index));
        }
    }
    last
}

fn later(one: (f64, usize), other: (f64, usize)) -> (f64, usize) {
    if other.0 > one.0 { other } else { one }
}

/// A number between 0 and 1 that is always the same for a transfer and a draw, so that a range does not flicker.
fn scattered(index: usize, draw: usize) -> f64 {
    let mut bits =
        (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (draw as u64).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (crate::rate::as_f64((bits ^ (bits >> 31)) >> 12) + 0.5) / crate::rate::as_f64(1 << 52)
}

/// The quantile of the normal distribution, to three digits (Abramowitz and Stegun, 26.2.22).
fn normal_quantile(share: f64) -> f64 {
    let tail = share.min(1.0 - share).max(1e-9);
    let t = (-2.0 * tail.ln()).sqrt();
    let value = t - (2.30753 + 0.27061 * t) / (1.0 + 0.99229 * t + 0.04481 * t * t);
    if share < 0.5 { -value } else { value }
}

/// What the transfers that move, or have moved, say about the others: by how much they take longer than was planned, and those of each
/// node once more. A plan that knows no earlier runs is replaced by what these transfers show.
struct Learned {
    /// Seconds for each transfer, and for each unit of it, where no earlier runs are known.
    fixed: f64,
    per_unit: f64,
    /// The logarithm of by how much transfers take longer than this, or than was planned.
    off: f64,
    /// The same of each node, beside the others.
    nodes: Vec<(Option<Arc<str>>, f64)>,
    sigma: f64,
    known: bool,
}

/// A transfer whose duration is known.
struct Sample<'a> {
    job: &'a Job,
    total: f64,
    seconds: f64,
}

impl Learned {
    fn of(jobs: &[Job]) -> Self {
        let samples: Vec<Sample<'_>> = jobs.iter().filter_map(sample).collect();
        let planned = jobs.iter().filter_map(|job| job.work.as_ref()).map(|work| work.fixed.as_secs_f64());
        let planned = planned.fold((0.0, 0.0), |(sum, all), fixed| (sum + fixed, all + 1.0));
        let usual_fixed = if planned.1 > 0.0 { planned.0 / planned.1 } else { 0.0 };
        let sizes: Vec<(f64, f64)> = samples.iter().map(|sample| (sample.total, sample.seconds)).collect();
        let (fixed, per_unit) = fit(&sizes, usual_fixed);
        let known = !samples.is_empty();
        let mut learned = Self { fixed, per_unit, off: 0.0, nodes: Vec::new(), sigma: 0.0, known };
        learned.compare(&samples);
        learned.sigma = learned.spread(&samples);
        learned
    }

    /// By how much they take longer. One transfer alone says half of it.
    fn compare(&mut self, samples: &[Sample<'_>]) {
        let known = || samples.iter().map(|sample| self.off(sample));
        let off = known().sum::<f64>() / (count(samples.len()) + 1.0);
        let mut sums: Vec<(Option<Arc<str>>, f64, f64)> = Vec::new();
        for (sample, own) in samples.iter().zip(known()) {
            match sums.iter_mut().find(|(name, ..)| *name == sample.job.runs_on) {
                Some((_, sum, all)) => (*sum, *all) = (*sum + own - off, *all + 1.0),
                None => sums.push((sample.job.runs_on.clone(), own - off, 1.0)),
            }
        }
        self.off = off;
        self.nodes = sums.into_iter().map(|(name, sum, all)| (name, sum / (all + 1.0))).collect();
    }

    /// How far the others may be off, as a deviation of the logarithm.
    fn spread(&self, samples: &[Sample<'_>]) -> f64 {
        let off = |sample: &Sample<'_>| (self.off(sample) - self.off - self.node(sample.job)).powi(2);
        let squares: f64 = samples.iter().map(off).sum();
        let all = count(samples.len());
        ((squares / all.max(1.0)).sqrt() + 0.4 / all.max(1.0).sqrt()).clamp(MIN_SPREAD, MAX_SPREAD)
    }

    /// The logarithm of how much longer a sample took than is usual.
    fn off(&self, sample: &Sample<'_>) -> f64 {
        (sample.seconds / self.usual(sample.job, sample.total)).ln().clamp(-3.0, 3.0)
    }

    /// The usual seconds of a transfer of this size.
    fn usual(&self, job: &Job, total: f64) -> f64 {
        let earlier = job.work.filter(|work| work.source == Source::History);
        let seconds = earlier.map_or(self.fixed + self.per_unit * total, |work| work.seconds(Some(total)));
        seconds.max(1e-3)
    }

    fn node(&self, job: &Job) -> f64 {
        self.nodes.iter().find(|(known, _)| *known == job.runs_on).map_or(0.0, |(_, off)| *off)
    }

    fn plan<'a>(&self, job: &'a Job) -> Option<Planned<'a>> {
        let learned = || self.learned(job).filter(|_| self.known);
        let planned = || {
            let elapsed = if job.state == JobState::Active { job.elapsed } else { 0.0 };
            job.work.as_ref().and_then(|work| Estimate::planned(work, job.total, job.settled, elapsed))
        };
        let estimate = job.own.or_else(learned).or_else(planned)?;
        Some(Planned { job, estimate })
    }

    fn learned(&self, job: &Job) -> Option<Estimate> {
        let total = size(job)?;
        let seconds = self.usual(job, total) * (self.off + self.node(job)).exp();
        let left = if job.settled > 0.0 {
            seconds * (1.0 - job.settled / total).max(0.0)
        } else if job.state == JobState::Active {
            seconds - job.elapsed
        } else {
            seconds
        };
        let overdue = job.state == JobState::Active && job.elapsed > 3.0 * seconds + 10.0;
        let sigma = match job.work.map(|work| work.basis) {
            Some(Basis::Assumed) if job.total.is_none() => self.sigma.max(0.5),
            _ => self.sigma,
        };
        (!overdue).then(|| Estimate::new(left.max(0.1 * seconds), sigma, Source::Pace))
    }
}

/// How far what was learned may be off, at least and at most.
const MIN_SPREAD: f64 = 0.24;
const MAX_SPREAD: f64 = 0.8;

/// How much there is of it: what it counts, else what was planned. Work of a fixed duration counts as one.
fn size(job: &Job) -> Option<f64> {
    let planned = || job.work.map(|work| work.amount.map_or(1.0, |amount| amount.total));
    job.total.or_else(planned).filter(|total| *total > 0.0)
}

fn sample(job: &Job) -> Option<Sample<'_>> {
    let total = size(job)?;
    let seconds = match job.state {
        JobState::Done => job.elapsed,
        JobState::Active => job.elapsed + job.own.filter(|own| own.source == Source::Pace)?.median,
        JobState::Queued | JobState::Lost => return None,
    };
    (seconds > 0.0).then_some(Sample { job, total, seconds })
}

/// A fixed part and a rate, by the relative errors, from sizes and seconds. The fixed part is only told apart if the sizes differ enough.
fn fit(samples: &[(f64, f64)], usual_fixed: f64) -> (f64, f64) {
    let shortest = samples.iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
    let smallest = samples.iter().map(|(total, _)| *total).fold(f64::INFINITY, f64::min);
    let largest = samples.iter().map(|(total, _)| *total).fold(0.0, f64::max);
    if samples.len() >= 3 && largest > 3.0 * smallest {
        let mut sums = [0.0; 5];
        for (total, seconds) in samples {
            let weight = 1.0 / (seconds * seconds);
            let terms = [1.0, *total, total * total, *seconds, total * seconds];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += weight * term);
        }
        let [ones, x, xx, y, xy] = sums;
        let determinant = ones * xx - x * x;
        let (fixed, per_unit) = ((xx * y - x * xy) / determinant, (ones * xy - x * y) / determinant);
        if fixed >= 0.0 && fixed.is_finite() && per_unit > 0.0 && per_unit.is_finite() {
            return (fixed, per_unit);
        }
    }
    let fixed = usual_fixed.min(0.9 * shortest);
    let (seconds, total) = samples.iter().fold((0.0, 0.0), |(sum, amount), (total, seconds)| {
        (sum + (seconds - fixed) / seconds, amount + total / seconds)
    });
    (fixed, if total > 0.0 { seconds / total } else { 0.0 })
}

/// The rate of transfers that have ended, given as bytes and seconds.
pub(crate) fn transfer_rate(transfers: &[(f64, f64)]) -> Option<TransferRate> {
    let moved = |(total, seconds): &&(f64, f64)| *total > 0.0 && *seconds > 0.0;
    let moved: Vec<(f64, f64)> = transfers.iter().filter(moved).copied().collect();
    let (fixed, per_second) = if moved.is_empty() {
        let all: f64 = transfers.iter().map(|(_, seconds)| seconds).sum();
        (all / count(transfers.len()).max(1.0), 0.0)
    } else {
        let (fixed, per_unit) = fit(&moved, 0.0);
        (fixed, if per_unit > 0.0 { 1.0 / per_unit } else { 0.0 })
    };
    let fixed = std::time::Duration::try_from_secs_f64(fixed).ok()?;
    Some(TransferRate { per_second, fixed_milliseconds: crate::text::as_millis(fixed) })
}
