//! Validation of the progress that plugins report.

use jiff::Timestamp;

use crate::sanitize::sanitize_to;
use crate::wire::OperationProgress;

/// An inconsistency of a progress report. The reading that is returned with it has been corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ProgressError {
    /// Less is done than before.
    #[error("progress went back from {before} to {now}")]
    Backwards {
        /// The previous count.
        before: u64,
        /// The current count.
        now: u64,
    },
    /// More is done than the total.
    #[error("progress exceeds the total: {done} of {total}")]
    ExceedsTotal {
        /// The count.
        done: u64,
        /// The total.
        total: u64,
    },
    /// A negative count.
    #[error("progress is negative")]
    Negative,
}

impl ProgressError {
    /// Stable reason for conditions, metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Backwards { .. } => "PluginProgressBackwards",
            Self::ExceedsTotal { .. } => "PluginProgressExceedsTotal",
            Self::Negative => "PluginProgressNegative",
        }
    }
}

/// A corrected report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Whether the operation has ended, successfully or not.
    pub completed: bool,
    /// The error; empty if it did not fail.
    pub error: String,
    /// Units done; never less than before, never more than the total.
    pub done: u64,
    /// Total units; zero while unknown.
    pub total: u64,
    /// The unit, as the plugin reports it.
    pub units: String,
    /// The description, as the plugin reports it.
    pub description: String,
    /// Start time, if reported.
    pub started: Option<Timestamp>,
    /// Time of the report, if reported.
    pub updated: Option<Timestamp>,
}

impl Reading {
    /// Whether the unit is bytes.
    pub fn counts_bytes(&self) -> bool {
        matches!(self.units.to_ascii_lowercase().as_str(), "" | "b" | "byte" | "bytes")
    }
}

/// Tracks the reports of one operation.
#[derive(Debug, Default)]
pub struct ProgressTracker {
    done: u64,
}

impl ProgressTracker {
    /// Corrects a report; returns the inconsistency, if any.
    pub fn read(&mut self, report: &OperationProgress) -> (Reading, Option<ProgressError>) {
        let (done, total) = (u64::try_from(report.n_completed), u64::try_from(report.n_total));
        let negative = done.is_err() || total.is_err();
        let (mut done, total) = (done.unwrap_or(0), total.unwrap_or(0));
        let mut problem = negative.then_some(ProgressError::Negative);
        if total > 0 && done > total {
            problem = problem.or(Some(ProgressError::ExceedsTotal { done, total }));
            done = total;
        }
        if done < self.done {
            problem = problem.or(Some(ProgressError::Backwards { before: self.done, now: done }));
            done = if total > 0 { self.done.min(total) } else { self.done };
        }
        self.done = done;
        let reading = Reading {
            completed: report.completed,
            error: sanitize_to(&report.err, 1024),
            done,
            total,
            units: sanitize_to(&report.operation_units, 40),
            description: sanitize_to(&report.description, 400),
            started: report.started.as_ref().and_then(timestamp),
            updated: report.updated.as_ref().and_then(timestamp),
        };
        (reading, problem)
    }
}

/// The zero time of Go and of the protocol mean no time.
fn timestamp(time: &prost_types::Timestamp) -> Option<Timestamp> {
    if time.seconds <= 0 {
        return None;
    }
    Timestamp::new(time.seconds, time.nanos).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(n_completed: i64, n_total: i64) -> OperationProgress {
        OperationProgress { n_completed, n_total, ..OperationProgress::default() }
    }

    #[test]
    fn inconsistent_progress_is_reported_and_corrected() {
        let mut tracker = ProgressTracker::default();
        let mut read = |done, total| {
            let (reading, fault) = tracker.read(&report(done, total));
            (reading.done, reading.total, fault.map(|fault| fault.to_string()))
        };
        assert_eq!(read(5, 0), (5, 0, None));
        assert_eq!(read(6, 10), (6, 10, None));
        assert_eq!(read(4, 10), (6, 10, Some("progress went back from 6 to 4".into())));
        assert_eq!(read(12, 10), (10, 10, Some("progress exceeds the total: 12 of 10".into())));
        assert_eq!(read(-1, 20), (10, 20, Some("progress is negative".into())));
        assert_eq!(read(20, 20), (20, 20, None));
    }

    #[test]
    fn text_is_sanitized_and_a_zero_time_is_none() {
        let zero = prost_types::Timestamp { seconds: -62_135_596_800, nanos: 0 };
        let report = OperationProgress {
            description: "copying \u{1b}[1m".into(),
            started: Some(zero),
            updated: Some(prost_types::Timestamp { seconds: 5, nanos: 0 }),
            ..OperationProgress::default()
        };
        let (reading, _) = ProgressTracker::default().read(&report);
        assert_eq!((reading.description.as_str(), reading.started), ("copying  [1m", None));
        assert_eq!(reading.updated, Some(Timestamp::from_second(5).unwrap()));
    }
}
