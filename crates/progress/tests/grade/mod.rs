//! Plays runs on the virtual clock and grades what is said about them: how far the time left is off, and what is called
//! stalled. Beside it two simple estimators: linear since the start, and a fixed window.

pub mod play;
pub mod simulate;
pub mod trace;

use play::{Look, play};
use simulate::Kind;

/// One look at a run, as a worker or a recorder saw it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Milliseconds since the start.
    pub at: u64,
    pub settled: u64,
    pub total: u64,
    /// The total may still change.
    pub growing: bool,
    /// Signs of life other than by counting, so far.
    pub signs: u64,
    /// It is paused, and says so.
    pub waiting: bool,
    /// Another process has taken over, and counts from the start again.
    pub taken_over: bool,
}

/// A run from its start to its end.
#[derive(Clone, Debug)]
pub struct Run {
    pub name: String,
    pub readings: Vec<Reading>,
    /// When it hung, in milliseconds: nothing moves any more, and it does not end.
    pub hung: Option<u64>,
}

/// The greatest median error that is good enough of a steady run, and of any other.
const MAX_STEADY_ERROR: f64 = 0.15;
const OTHERS: f64 = 0.35;
/// What the counter could not show may be estimated as badly as by the better of the simple estimators, and a little worse.
const MAX_RATIO_TO_SIMPLE_METHODS: f64 = 1.2;
/// A time left must be told in at least this share of the looks.
const MIN_SHOWN_SHARE: f64 = 0.7;

/// What is graded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graded {
    /// Many runs of one simulated kind.
    Simulated(Kind),
    /// One recorded run.
    Trace,
    /// All recorded runs of one mover.
    Mover,
}

/// What the grading of some runs of one kind gave. Each run weighs the same, however long it is.
#[derive(Debug)]
pub struct Grade {
    pub name: String,
    pub graded: Graded,
    pub runs: usize,
    /// Medians of the error of the time left, as a share of the truth.
    pub ours: f64,
    pub linear: f64,
    pub window: f64,
    /// How often there was a time left at all, while it moved.
    pub told: f64,
    /// How often the truth was within the range that was shown.
    pub within: f64,
    pub false_stalls: usize,
    /// The worst time to name a hung one, beside the time it may take: the greater of 30 s and three times its cadence.
    pub named: Option<(f64, f64)>,
}

/// Grades runs of one kind together.
pub fn grade(name: &str, graded: Graded, runs: &[Run]) -> Grade {
    let mut sums = Sums::default();
    for run in runs {
        sums.take(run, &play(run));
    }
    sums.grade(name, graded, runs.len())
}

#[derive(Default)]
struct Sums {
    ours: Errors,
    linear: Errors,
    window: Errors,
    told: Vec<f64>,
    within: Vec<f64>,
    false_stalls: usize,
    named: Option<(f64, f64)>,
}

impl Sums {
    fn take(&mut self, run: &Run, looks: &[Look]) {
        match run.hung {
            Some(at) => self.take_hung(at, looks),
            None => self.take_healthy(looks),
        }
    }

    fn take_healthy(&mut self, looks: &[Look]) {
        self.false_stalls += usize::from(looks.iter().any(|look| look.stalled));
        let (Some(first), Some(last)) = (looks.first(), looks.last()) else { return };
        // From the first look on: what a recorder waited for before it is no part of the transfer.
        let early = first.at + (last.at - first.at) / 10.0;
        let is_graded = |look: &&Look| look.at >= early && look.moving && last.at - look.at >= 1.0;
        let graded: Vec<&Look> = looks.iter().filter(is_graded).collect();
        let errors = |estimate: fn(&Look) -> Option<f64>| {
            let error = |look: &&Look| estimate(look).map(|left| (left / (last.at - look.at) - 1.0).abs());
            graded.iter().filter_map(error).collect::<Vec<f64>>()
        };
        let ours = errors(|look| look.ours.map(|(low, high)| low.midpoint(high)));
        let holds = |look: &&&Look| look.ours.is_some_and(|(low, high)| (low..=high).contains(&(last.at - look.at)));
        self.told.push(share(ours.len(), graded.len()));
        self.within.push(share(graded.iter().filter(holds).count(), ours.len()));
        self.ours.add_run(&ours);
        self.linear.add_run(&errors(|look| look.linear));
        self.window.add_run(&errors(|look| look.window));
    }

    fn take_hung(&mut self, at: u64, looks: &[Look]) {
        let hung = seconds(at);
        self.false_stalls += usize::from(looks.iter().any(|look| look.stalled && look.at <= hung));
        let named =
            looks.iter().find(|look| look.stalled && look.at > hung).map_or(f64::INFINITY, |look| look.at - hung);
        let allowed = (3.0 * play::cadence(looks, hung)).max(30.0);
        if self.named.is_none_or(|(worst, limit)| named - allowed > worst - limit) {
            self.named = Some((named, allowed));
        }
    }

    fn grade(self, name: &str, graded: Graded, runs: usize) -> Grade {
        Grade {
            name: name.to_owned(),
            graded,
            runs,
            told: mean(&self.told),
            within: mean(&self.within),
            ours: self.ours.median(),
            linear: self.linear.median(),
            window: self.window.median(),
            false_stalls: self.false_stalls,
            named: self.named,
        }
    }
}

/// Errors and what each weighs, so that all runs weigh the same.
#[derive(Default)]
struct Errors(Vec<(f64, f64)>);

impl Errors {
    fn add_run(&mut self, errors: &[f64]) {
        self.0.extend(errors.iter().map(|error| (*error, 1.0 / count(errors.len()))));
    }

    /// The error that half of the weight does not exceed.
    fn median(mut self) -> f64 {
        self.0.sort_by(|one, other| one.0.total_cmp(&other.0));
        let half = self.0.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
        let mut so_far = 0.0;
        let middle = self.0.iter().find(|(_, weight)| {
            so_far += weight;
            so_far >= half
        });
        middle.map_or(0.0, |(error, _)| *error)
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 1.0 } else { count(part) / count(whole) }
}

fn mean(all: &[f64]) -> f64 {
    if all.is_empty() { 1.0 } else { all.iter().sum::<f64>() / count(all.len()) }
}

pub fn seconds(milliseconds: u64) -> f64 {
    std::time::Duration::from_millis(milliseconds).as_secs_f64()
}

fn count(of: usize) -> f64 {
    u32::try_from(of).map_or(f64::MAX, f64::from)
}

/// Grades every kind of simulated run, so many of each; every recorded one; and the recorded ones of each mover together.
pub fn all(runs: u64) -> Vec<Grade> {
    let simulated = Kind::ALL.iter().map(|kind| {
        let runs: Vec<Run> = (0..runs).map(|seed| kind.run(seed)).collect();
        grade(kind.name(), Graded::Simulated(*kind), &runs)
    });
    let recorded = trace::recorded();
    let traces = recorded.iter().map(|run| grade(&run.name, Graded::Trace, std::slice::from_ref(run)));
    let movers = trace::MOVERS.iter().map(|mover| {
        let runs: Vec<Run> = recorded.iter().filter(|run| run.name.starts_with(mover)).cloned().collect();
        grade(&format!("{mover}, all recorded"), Graded::Mover, &runs)
    });
    simulated.chain(traces).chain(movers).collect()
}

impl Grade {
    /// The greatest median error that is good enough.
    pub fn bar(&self) -> f64 {
        match self.graded {
            Graded::Simulated(Kind::Steady) => MAX_STEADY_ERROR,
            Graded::Simulated(_) | Graded::Mover => OTHERS,
            Graded::Trace => OTHERS.max(MAX_RATIO_TO_SIMPLE_METHODS * self.linear.min(self.window)),
        }
    }

    /// What is not good enough about it.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.ours > self.bar() {
            let (error, bar) = (self.ours * 100.0, self.bar() * 100.0);
            faults.push(format!("{}: the time left is off by {error:.0} %, allowed are {bar:.0} %", self.name));
        }
        if self.told < MIN_SHOWN_SHARE {
            faults.push(format!("{}: a time left is told in {:.0} % of the looks only", self.name, self.told * 100.0));
        }
        if self.false_stalls > 0 {
            faults.push(format!("{}: {} healthy runs were called stalled", self.name, self.false_stalls));
        }
        if let Some((named, allowed)) = self.named.filter(|(named, allowed)| named > allowed) {
            faults.push(format!("{}: named after {named:.0} s, allowed are {allowed:.0} s", self.name));
        }
        faults
    }
}

/// The table, one line for each kind.
pub fn table(grades: &[Grade]) -> Vec<String> {
    let mut lines = vec![
        "| run | runs | error of the time left (median) | bar | linear since the start | fixed window of 30 s | shown | truth in range | false stalls | hung: named after (allowed) |".to_owned(),
        "|---|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    for grade in grades {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let error = |share: f64| if grade.named.is_some() { "-".to_owned() } else { percent(share) };
        let named =
            grade.named.map_or_else(|| "-".to_owned(), |(named, allowed)| format!("{named:.0} s ({allowed:.0} s)"));
        lines.push(format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {named} |",
            grade.name,
            grade.runs,
            error(grade.ours),
            error(grade.bar()),
            error(grade.linear),
            error(grade.window),
            error(grade.told),
            error(grade.within),
            grade.false_stalls,
        ));
    }
    lines
}
