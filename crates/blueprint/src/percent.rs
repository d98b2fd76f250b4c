//! How far a phase, an action and a set of actions are: document 003's rules as pure functions.
//!
//! Everything is counted in hundredths of a percent and cut, never rounded: one third is `33.33`, two thirds `66.66`, and only
//! what has ended well is `100.00`.

use plimsoll_progress::Percent;

use crate::functions::table::Shown;

/// Hundredths of a percent.
pub type Hundredths = u16;

/// All of it.
pub const WHOLE: Hundredths = 10_000;
/// As much as anything shows that has not ended well.
pub const ALMOST: Hundredths = WHOLE - 1;

/// Where a function is that moves in three equal steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// What it needs is being prepared.
    #[default]
    Prerequisites,
    /// It does its work.
    Execution,
    /// It cleans up.
    Cleanup,
}

impl Step {
    /// What is behind it: none, one or two thirds.
    pub fn reached(self) -> Hundredths {
        match self {
            Self::Prerequisites => 0,
            Self::Execution => WHOLE / 3,
            Self::Cleanup => 6_666,
        }
    }
}

/// Bytes that were moved, of how many if that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Read so far.
    pub done: u64,
    /// To read in all.
    pub total: Option<u64>,
}

impl Bytes {
    /// The share that is done; nothing while the total is unknown.
    pub fn share(self) -> Option<Hundredths> {
        let total = self.total.filter(|total| *total > 0)?;
        Some(Percent::of(self.done, total).hundredths())
    }
}

/// How far a phase that has not ended is.
pub fn running(shown: Shown, step: Step, bytes: Bytes) -> Hundredths {
    match shown {
        Shown::Bytes => bytes.share().unwrap_or(0),
        Shown::AtTheEnd => 0,
        // Bytes whose total is known move inside the execution third, and never out of it.
        Shown::Steps if step == Step::Execution => {
            let third = u32::from(Step::Cleanup.reached() - Step::Execution.reached());
            let inside = third * u32::from(bytes.share().unwrap_or(0)) / u32::from(WHOLE);
            Step::Execution.reached() + Hundredths::try_from(inside).unwrap_or(0)
        }
        Shown::Steps => step.reached(),
    }
}

/// The mean of phases, cut; nothing without phases.
pub fn mean(phases: &[Hundredths]) -> Option<Hundredths> {
    let sum: u64 = phases.iter().map(|percent| u64::from(*percent)).sum();
    let mean = sum.checked_div(phases.len() as u64)?;
    Hundredths::try_from(mean).ok()
}

/// The mean as it is shown: below the whole while anything has still to run, the phase at the end included.
pub fn shown_mean(phases: &[Hundredths], unfinished: bool) -> Option<Hundredths> {
    let most = if unfinished { ALMOST } else { WHOLE };
    mean(phases).map(|mean| mean.min(most))
}

/// As it stands in a status: `43.33`.
pub fn text(percent: Hundredths) -> String {
    format!("{}.{:02}", percent / 100, percent % 100)
}

/// What [`text`] wrote, or another program in its own manner (`43`).
pub fn parse(text: &str) -> Option<Hundredths> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let decimals: String = decimals.chars().chain("00".chars()).take(2).collect();
    let percent = whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(decimals.parse().ok()?)?;
    (percent <= WHOLE).then_some(percent)
}
