//! Validation of the progress that plugins report.

use jiff::Timestamp;
use plimsoll_engine::item_operations::ItemOperationProgress;

use crate::sanitize::sanitize_to;
use crate::wire::OperationProgress;

/// An inconsistency of a progress report. The progress that is returned with it has been corrected.
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

/// Tracks the reports of one operation.
#[derive(Debug, Default)]
pub struct ProgressTracker {
    done: u64,
}

impl ProgressTracker {
    /// Corrects a report: what is done is never less than before and never more than the total. Returns the inconsistency, if any.
    pub fn read(&mut self, report: &OperationProgress) -> (ItemOperationProgress, Option<ProgressError>) {
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
        let progress = ItemOperationProgress {
            completed: report.completed,
            error: sanitize_to(&report.err, 1024),
            done,
            total,
            units: sanitize_to(&report.operation_units, 40),
            description: sanitize_to(&report.description, 400),
            started: report.started.as_ref().and_then(timestamp),
            updated: report.updated.as_ref().and_then(timestamp),
            fault: None,
        };
        (progress, problem)
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
            let (progress, fault) = tracker.read(&report(done, total));
            (progress.done, progress.total, fault.map(|fault| fault.to_string()))
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
        let (progress, _) = ProgressTracker::default().read(&report);
        assert_eq!((progress.description.as_str(), progress.started), ("copying  [1m", None));
        assert_eq!(progress.updated, Some(Timestamp::from_second(5).unwrap()));
    }
}
