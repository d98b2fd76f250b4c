//! Percentages of phases, actions and ActionSets, as pure functions (Kanister design document 003).
//!
//! Values are in hundredths of a percent and truncated: one third is `33.33`, two thirds `66.66`, and only complete work is
//! `100.00`.

use plimsoll_progress::Percent;

use crate::functions::function_spec::ProgressKind;

/// Hundredths of a percent.
pub type Hundredths = u16;

/// 100 %.
pub const COMPLETE: Hundredths = 10_000;
/// Maximum for incomplete work.
pub const MAX_INCOMPLETE: Hundredths = COMPLETE - 1;

/// The current step of a function with three equal steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Prerequisites.
    #[default]
    Prerequisites,
    /// Execution.
    Execution,
    /// Cleanup.
    Cleanup,
}

impl Step {
    /// The number of steps.
    pub const COUNT: u64 = 3;

    /// The number of steps before this one.
    pub fn count(self) -> u64 {
        match self {
            Self::Prerequisites => 0,
            Self::Execution => 1,
            Self::Cleanup => 2,
        }
    }

    /// The step after this number of steps.
    pub fn from_count(count: u64) -> Self {
        match count {
            0 => Self::Prerequisites,
            1 => Self::Execution,
            _ => Self::Cleanup,
        }
    }

    /// The percentage at the start of the step: none, one or two thirds.
    pub fn reached(self) -> Hundredths {
        match self {
            Self::Prerequisites => 0,
            Self::Execution => COMPLETE / 3,
            Self::Cleanup => 6_666,
        }
    }
}

/// Transferred bytes and their total, if known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Bytes done.
    pub done: u64,
    /// Total bytes.
    pub total: Option<u64>,
}

impl Bytes {
    /// The percentage; `None` while the total is unknown.
    pub fn share(self) -> Option<Hundredths> {
        let total = self.total.filter(|total| *total > 0)?;
        Some(Percent::of(self.done, total).hundredths())
    }
}

/// The percentage of a running phase.
pub fn running(kind: ProgressKind, step: Step, bytes: Bytes) -> Hundredths {
    match kind {
        ProgressKind::Bytes => bytes.share().unwrap_or(0),
        ProgressKind::OnCompletion => 0,
        // Bytes with a known total advance within the execution third.
        ProgressKind::Steps if step == Step::Execution => {
            let third = u32::from(Step::Cleanup.reached() - Step::Execution.reached());
            let inside = third * u32::from(bytes.share().unwrap_or(0)) / u32::from(COMPLETE);
            Step::Execution.reached() + Hundredths::try_from(inside).unwrap_or(0)
        }
        ProgressKind::Steps => step.reached(),
    }
}

/// The truncated mean; `None` without phases.
pub fn mean(phases: &[Hundredths]) -> Option<Hundredths> {
    let sum: u64 = phases.iter().map(|percent| u64::from(*percent)).sum();
    let mean = sum.checked_div(phases.len() as u64)?;
    Hundredths::try_from(mean).ok()
}

/// The mean for display: below 100 % while anything has still to run, including the deferPhase.
pub fn displayed_mean(phases: &[Hundredths], unfinished: bool) -> Option<Hundredths> {
    let max = if unfinished { MAX_INCOMPLETE } else { COMPLETE };
    mean(phases).map(|mean| mean.min(max))
}

/// The value in a status: `43.33`.
pub fn format(percent: Hundredths) -> String {
    format!("{}.{:02}", percent / 100, percent % 100)
}

/// Parses a value that `format` has written, or of another program (`43`).
pub fn parse(text: &str) -> Option<Hundredths> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let decimals: String = decimals.chars().chain("00".chars()).take(2).collect();
    let percent = whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(decimals.parse().ok()?)?;
    (percent <= COMPLETE).then_some(percent)
}
