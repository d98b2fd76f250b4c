//! Plays runs on the virtual clock and grades what is said about them: how far the time left is off, and what is called
//! stalled. Beside it the two things everybody else does: linear since the start, and a fixed window.

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

/// What the grading of some runs of one kind gave.
#[derive(Debug, Default)]
pub struct Grade {
    pub name: String,
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
pub fn grade(name: &str, runs: &[Run]) -> Grade {
    let mut sums = Sums::default();
    for run in runs {
        sums.take(run, &play(run));
    }
    sums.grade(name, runs.len())
}

#[derive(Default)]
struct Sums {
    ours: Vec<f64>,
    linear: Vec<f64>,
    window: Vec<f64>,
    looks: usize,
    within: usize,
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
        let end = looks.last().map_or(0.0, |look| look.at);
        for look in looks.iter().filter(|look| look.at >= end / 10.0 && look.moving && end - look.at >= 1.0) {
            let truth = end - look.at;
            let error = |estimate: Option<f64>| estimate.map(|estimate| (estimate - truth).abs() / truth);
            self.looks += 1;
            self.ours.extend(error(look.ours.map(|(low, high)| low.midpoint(high))));
            self.linear.extend(error(look.linear));
            self.window.extend(error(look.window));
            self.within += usize::from(look.ours.is_some_and(|(low, high)| (low..=high).contains(&truth)));
        }
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

    fn grade(self, name: &str, runs: usize) -> Grade {
        let share = |part: usize, whole: usize| if whole == 0 { 1.0 } else { count(part) / count(whole) };
        Grade {
            name: name.to_owned(),
            runs,
            told: share(self.ours.len(), self.looks),
            within: share(self.within, self.ours.len()),
            ours: median(self.ours),
            linear: median(self.linear),
            window: median(self.window),
            false_stalls: self.false_stalls,
            named: self.named,
        }
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

pub fn seconds(milliseconds: u64) -> f64 {
    std::time::Duration::from_millis(milliseconds).as_secs_f64()
}

fn count(of: usize) -> f64 {
    u32::try_from(of).map_or(f64::MAX, f64::from)
}

/// Grades every kind of simulated run, so many of each, and every recorded one.
pub fn all(runs: u64) -> Vec<Grade> {
    let simulated = Kind::ALL.iter().map(|kind| {
        let runs: Vec<Run> = (0..runs).map(|seed| kind.run(seed)).collect();
        grade(kind.name(), &runs)
    });
    let recorded = trace::recorded().into_iter().map(|run| grade(&run.name, std::slice::from_ref(&run)));
    simulated.chain(recorded).collect()
}

impl Grade {
    /// The greatest median error that is good enough.
    pub fn bar(&self) -> f64 {
        match self.name.as_str() {
            "steady" => 0.15,
            name if name.ends_with("(stalls alone)") => f64::INFINITY,
            _ => 0.35,
        }
    }

    /// What is not good enough about it.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.ours > self.bar() {
            faults.push(format!("{}: the time left is off by {:.0} %", self.name, self.ours * 100.0));
        }
        if self.told < 0.7 && self.bar().is_finite() {
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
        "| run | runs | error of the time left (median) | linear since the start | fixed window of 30 s | told | truth in range | false stalls | hung: named after (allowed) |".to_owned(),
        "|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    for grade in grades {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let error = |share: f64| if grade.named.is_some() { "-".to_owned() } else { percent(share) };
        let named =
            grade.named.map_or_else(|| "-".to_owned(), |(named, allowed)| format!("{named:.0} s ({allowed:.0} s)"));
        lines.push(format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {named} |",
            grade.name,
            grade.runs,
            error(grade.ours),
            error(grade.linear),
            error(grade.window),
            error(grade.told),
            error(grade.within),
            grade.false_stalls,
        ));
    }
    lines
}
