//! The samples of an operation for a chart: few of them, however long it takes.

use serde::{Deserialize, Serialize};

use crate::percent::Percent;
use crate::snapshot::Snapshot;

/// The shortest distance between two samples, in milliseconds.
const MIN_DISTANCE: i64 = 450;

/// The numbers of an operation at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The time, in milliseconds since 1970.
    pub at: i64,
    /// Bytes per second, or the unit that the operation counts instead.
    #[serde(default)]
    pub rate: u64,
    /// Seconds left, lower and upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<[u64; 2]>,
    /// Hundredths of a percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u16>,
}

impl Sample {
    /// The numbers of a tree at this time.
    pub fn of(tree: &Snapshot, at: i64) -> Self {
        let speed = tree.speed();
        Self {
            at,
            rate: speed.rate.unwrap_or(0),
            left: speed.left.map(|left| [left.low, left.high]),
            percent: tree.percent().map(Percent::hundredths),
        }
    }
}

/// Samples in order of time.
#[derive(Clone, Debug)]
pub struct Chart {
    samples: Vec<Sample>,
    distance: i64,
    most: usize,
}

impl Chart {
    /// An empty chart of fewer samples than this.
    pub fn new(most: usize) -> Self {
        Self { samples: Vec::new(), distance: 0, most }
    }

    /// The samples, in order of time.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Adds a sample, unless the last one is too near. With too many samples every second one is dropped.
    pub fn add(&mut self, sample: Sample) {
        if self.samples.last().is_some_and(|last| sample.at - last.at < self.distance.max(MIN_DISTANCE)) {
            return;
        }
        self.samples.push(sample);
        if self.samples.len() >= self.most.max(2) {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            let (first, last) = (self.samples[0].at, self.samples[self.samples.len() - 1].at);
            // The mean distance of the samples that are kept.
            self.distance = (last - first) / i64::try_from(self.samples.len()).unwrap_or(1).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_chart_keeps_its_beginning_and_its_end_with_few_samples() {
        let mut chart = Chart::new(180);
        for second in 0..100_000 {
            chart.add(Sample { at: second * 1000, ..Sample::default() });
        }
        let samples = chart.samples();
        assert!(samples.len() < 180 && samples.len() >= 45, "{}", samples.len());
        assert_eq!(samples[0].at, 0);
        assert!(samples[samples.len() - 1].at > 98_000_000);
        assert!(samples.windows(2).all(|pair| pair[0].at < pair[1].at));
    }
}
