//! How far a plugin says it is: believed only as far as it makes sense.

use jiff::Timestamp;

use crate::text::bounded;
use crate::wire::OperationProgress;

/// What is wrong with a report. The reading that comes with it has been put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Less is done than was before.
    #[error("its progress went back from {before} to {now}")]
    Backwards {
        /// What was said before.
        before: u64,
        /// What is said now.
        now: u64,
    },
    /// More is done than there is.
    #[error("its progress went past its total: {done} of {total}")]
    PastTotal {
        /// What is said to be done.
        done: u64,
        /// Of so much.
        total: u64,
    },
    /// A count below zero.
    #[error("its progress is below zero")]
    Negative,
}

impl Fault {
    /// A stable word for conditions, metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Backwards { .. } => "PluginProgressBackwards",
            Self::PastTotal { .. } => "PluginProgressPastTotal",
            Self::Negative => "PluginProgressNegative",
        }
    }
}

/// One report, put right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Whether the work has ended, well or not.
    pub completed: bool,
    /// Why it failed; empty if it did not.
    pub error: String,
    /// Never less than before, never more than the total.
    pub done: u64,
    /// Zero while it is unknown.
    pub total: u64,
    /// What is counted, in the plugin's words.
    pub units: String,
    /// What it is doing, in the plugin's words.
    pub description: String,
    /// When it began, if it said.
    pub started: Option<Timestamp>,
    /// When this was so, if it said.
    pub updated: Option<Timestamp>,
}

impl Reading {
    /// Whether bytes are counted.
    pub fn counts_bytes(&self) -> bool {
        matches!(self.units.to_ascii_lowercase().as_str(), "" | "b" | "byte" | "bytes")
    }
}

/// Follows the reports about one piece of work.
#[derive(Debug, Default)]
pub struct Watch {
    done: u64,
}

impl Watch {
    /// Puts a report right, and says what was wrong with it.
    pub fn read(&mut self, report: &OperationProgress) -> (Reading, Option<Fault>) {
        let (done, total) = (u64::try_from(report.n_completed), u64::try_from(report.n_total));
        let negative = done.is_err() || total.is_err();
        let (mut done, total) = (done.unwrap_or(0), total.unwrap_or(0));
        let mut fault = negative.then_some(Fault::Negative);
        if total > 0 && done > total {
            fault = fault.or(Some(Fault::PastTotal { done, total }));
            done = total;
        }
        if done < self.done {
            fault = fault.or(Some(Fault::Backwards { before: self.done, now: done }));
            done = if total > 0 { self.done.min(total) } else { self.done };
        }
        self.done = done;
        let reading = Reading {
            completed: report.completed,
            error: bounded(&report.err, 1024),
            done,
            total,
            units: bounded(&report.operation_units, 40),
            description: bounded(&report.description, 400),
            started: report.started.as_ref().and_then(timestamp),
            updated: report.updated.as_ref().and_then(timestamp),
        };
        (reading, fault)
    }
}

/// The zero time of Go, and of the protocol, mean that there is none.
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
    fn what_goes_back_past_its_total_or_below_zero_is_named_and_put_right() {
        let mut watch = Watch::default();
        let mut read = |done, total| {
            let (reading, fault) = watch.read(&report(done, total));
            (reading.done, reading.total, fault.map(|fault| fault.to_string()))
        };
        assert_eq!(read(5, 0), (5, 0, None));
        assert_eq!(read(6, 10), (6, 10, None));
        assert_eq!(read(4, 10), (6, 10, Some("its progress went back from 6 to 4".into())));
        assert_eq!(read(12, 10), (10, 10, Some("its progress went past its total: 12 of 10".into())));
        assert_eq!(read(-1, 20), (10, 20, Some("its progress is below zero".into())));
        assert_eq!(read(20, 20), (20, 20, None));
    }

    #[test]
    fn words_are_cleaned_and_a_zero_time_is_none() {
        let zero = prost_types::Timestamp { seconds: -62_135_596_800, nanos: 0 };
        let report = OperationProgress {
            description: "copying \u{1b}[1m".into(),
            started: Some(zero),
            updated: Some(prost_types::Timestamp { seconds: 5, nanos: 0 }),
            ..OperationProgress::default()
        };
        let (reading, _) = Watch::default().read(&report);
        assert_eq!((reading.description.as_str(), reading.started), ("copying  [1m", None));
        assert_eq!(reading.updated, Some(Timestamp::from_second(5).unwrap()));
    }
}
