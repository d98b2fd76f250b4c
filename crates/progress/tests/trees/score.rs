//! Figures about played operations, beside their goals.

use plimsoll_progress::Stall;

use super::play::{Look, Played};

/// The figures of one played run.
#[derive(Clone, Debug)]
pub struct Score {
    /// Errors of the percentage, in points.
    pub percent: Vec<f64>,
    /// The longest time that one percentage stood while work moved, as a share of the run.
    pub standing: f64,
    /// Relative errors of the time left: ours, linear, window, restic, kopia.
    pub left: [Vec<f64>; 5],
    /// The share of the run in which a time left was shown.
    pub shown: f64,
    /// At 10, 50 and 90 % of the run: whether the range held the truth, if one was shown, and how wide it was.
    pub ranges: Vec<(bool, f64)>,
    /// The error of the first time left, from the third run on.
    pub first: Option<f64>,
    /// It is long enough for its time left to be graded.
    pub is_timed: bool,
    /// Why it was called stalled, though it was not.
    pub false_stall: Option<Stall>,
}

/// A run that is shorter is over before its time left is read, and one look at it is a large part of it.
const SHORTEST: f64 = 20.0;

impl Score {
    pub fn of(played: &Played, run: u64) -> Self {
        let Played { looks, seconds, .. } = played;
        let is_timed = *seconds >= SHORTEST;
        let middle = |look: &Look| look.left.map(|(low, high)| low.midpoint(high));
        let graded: Vec<&Look> = looks.iter().filter(|look| is_timed && seconds - look.at >= 2.0).collect();
        let errors = |estimate: &dyn Fn(&Look) -> Option<f64>| -> Vec<f64> {
            let error = |look: &&Look| estimate(look).map(|left| (left / (seconds - look.at) - 1.0).abs());
            graded.iter().filter_map(error).collect()
        };
        let left = [
            errors(&middle),
            errors(&|look| look.others.linear),
            errors(&|look| look.others.window),
            errors(&|look| look.others.restic),
            errors(&|look| look.others.kopia),
        ];
        Self {
            percent: looks.iter().map(|look| percent_error(look, *seconds)).collect(),
            standing: standing(looks) / seconds,
            shown: if graded.is_empty() { 1.0 } else { count(left[0].len()) / count(graded.len()) },
            ranges: if is_timed { ranges(looks, *seconds) } else { Vec::new() },
            first: graded
                .iter()
                .find_map(|look| Some((middle(look)? / (seconds - look.at) - 1.0).abs()))
                .filter(|_| run >= 2),
            left,
            is_timed,
            false_stall: looks.iter().find_map(|look| look.stall.clone()),
        }
    }
}

fn percent_error(look: &Look, seconds: f64) -> f64 {
    let shown = look.percent.map_or(0.0, |percent| f64::from(percent) / 100.0);
    (shown - 100.0 * look.at / seconds).abs()
}

/// The longest time that one percentage stood while bytes or items moved.
fn standing(looks: &[Look]) -> f64 {
    let (mut longest, mut so_far): (f64, f64) = (0.0, 0.0);
    for pair in looks.windows(2) {
        let same = pair[0].percent == pair[1].percent && pair[1].moved;
        so_far = if same { so_far + pair[1].at - pair[0].at } else { 0.0 };
        longest = longest.max(so_far);
    }
    longest
}

fn ranges(looks: &[Look], seconds: f64) -> Vec<(bool, f64)> {
    let range = |share: f64| {
        let look = looks.iter().find(|look| look.at >= share * seconds)?;
        let (low, high) = look.left?;
        // Whole seconds: the truth is compared as it would be shown.
        let truth = seconds - look.at;
        Some((low <= truth.ceil() && truth.floor() <= high, high / low))
    };
    [0.1, 0.5, 0.9].into_iter().filter_map(range).collect()
}

fn count(of: usize) -> f64 {
    u32::try_from(of).map_or(f64::MAX, f64::from)
}

/// The figures of many runs. Each run weighs the same, however long it is.
#[derive(Clone, Debug)]
pub struct Figures {
    pub runs: usize,
    pub percent_median: f64,
    pub percent_p95: f64,
    /// The 95th percentile over the runs.
    pub standing: f64,
    /// Medians of the errors: ours, linear, window, restic, kopia.
    pub left: [Option<f64>; 5],
    /// The mean over the runs.
    pub shown: f64,
    pub holds: Option<f64>,
    pub ratio: Option<f64>,
    /// The median, and the share within the goal.
    pub first: Option<(f64, f64)>,
    /// Runs that were called stalled, and none was.
    pub false_stalls: usize,
}

impl Figures {
    pub fn of(scores: &[&Score]) -> Self {
        let timed: Vec<&&Score> = scores.iter().filter(|score| score.is_timed).collect();
        let ranges: Vec<(bool, f64)> = scores.iter().flat_map(|score| score.ranges.iter().copied()).collect();
        let first: Vec<f64> = scores.iter().filter_map(|score| score.first).collect();
        let within = count(first.iter().filter(|error| **error <= GOALS.first).count());
        let left = |which: usize| quantile(timed.iter().map(|score| score.left[which].as_slice()), 0.5);
        let single = |values: &[f64], share: f64| quantile(values.iter().map(std::slice::from_ref), share);
        let held = count(ranges.iter().filter(|(holds, _)| *holds).count());
        let ratios: Vec<f64> = ranges.iter().map(|(_, ratio)| *ratio).collect();
        let standing: Vec<f64> = timed.iter().map(|score| score.standing).collect();
        Self {
            runs: scores.len(),
            percent_median: quantile(scores.iter().map(|score| score.percent.as_slice()), 0.5).unwrap_or(0.0),
            percent_p95: quantile(scores.iter().map(|score| score.percent.as_slice()), 0.95).unwrap_or(0.0),
            standing: single(&standing, 0.95).unwrap_or(0.0),
            left: std::array::from_fn(left),
            shown: timed.iter().map(|score| score.shown).sum::<f64>() / count(timed.len()).max(1.0),
            holds: (!ranges.is_empty()).then(|| held / count(ranges.len())),
            ratio: single(&ratios, 0.5),
            first: single(&first, 0.5).map(|median| (median, within / count(first.len()))),
            false_stalls: scores.iter().filter(|score| score.false_stall.is_some()).count(),
        }
    }

    /// Each goal: what it is about, the figure, the goal, and whether it is met.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let points = |points: f64| format!("{points:.1} points");
        let at_most = |what, value: Option<f64>, goal: f64, show: &dyn Fn(f64) -> String| Verdict {
            what,
            value: value.map_or_else(|| "-".to_owned(), show),
            goal: format!("at most {}", show(goal)),
            met: value.is_none_or(|value| value <= goal),
        };
        let (low, high) = GOALS.holds;
        vec![
            at_most(
                "percent against elapsed/total, median error",
                Some(self.percent_median),
                GOALS.percent_median,
                &points,
            ),
            at_most("percent, 95th percentile", Some(self.percent_p95), GOALS.percent_p95, &points),
            at_most(
                "longest standing of one percentage while work moves",
                Some(self.standing),
                GOALS.standing,
                &percent,
            ),
            at_most("time left, median error", self.left[0], GOALS.left, &percent),
            Verdict {
                what: "time left shown",
                value: percent(self.shown),
                goal: format!("at least {}", percent(GOALS.shown)),
                met: self.shown >= GOALS.shown,
            },
            Verdict {
                what: "p10 to p90 holds the truth",
                value: self.holds.map_or_else(|| "-".to_owned(), percent),
                goal: format!("{} to {}", percent(low), percent(high)),
                met: self.holds.is_none_or(|holds| (low..=high).contains(&holds)),
            },
            at_most("p90/p10, median", self.ratio, GOALS.ratio, &|ratio| format!("{ratio:.2}")),
            at_most(
                "first time left from the third run on, median error",
                self.first.map(|first| first.0),
                GOALS.first,
                &percent,
            ),
            at_most("false stalls in these runs", Some(count(self.false_stalls)), 0.0, &|runs| format!("{runs:.0}")),
        ]
    }
}

/// One figure beside its goal.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub what: &'static str,
    pub value: String,
    pub goal: String,
    pub met: bool,
}

struct Goals {
    percent_median: f64,
    percent_p95: f64,
    standing: f64,
    left: f64,
    shown: f64,
    holds: (f64, f64),
    ratio: f64,
    first: f64,
}

const GOALS: Goals = Goals {
    percent_median: 10.0,
    percent_p95: 25.0,
    standing: 0.05,
    left: 0.35,
    shown: 0.7,
    holds: (0.75, 0.9),
    ratio: 2.5,
    first: 0.25,
};

/// The value that this share of the weight does not exceed. Each slice weighs the same.
fn quantile<'a>(runs: impl Iterator<Item = &'a [f64]>, share: f64) -> Option<f64> {
    let weigh = |run: &'a [f64]| run.iter().map(move |value| (*value, 1.0 / count(run.len())));
    let mut all: Vec<(f64, f64)> = runs.flat_map(weigh).collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let goal = all.iter().map(|(_, weight)| weight).sum::<f64>() * share;
    let mut so_far = 0.0;
    let found = all.iter().find(|(_, weight)| {
        so_far += weight;
        so_far >= goal - 1e-9
    });
    found.or(all.last()).map(|(value, _)| *value)
}
