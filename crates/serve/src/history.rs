//! Samples of operations for charts: few of them, however long an operation takes.

use std::collections::{BTreeMap, VecDeque};

use plimsoll_progress::{Chart, Sample};

/// At this number of samples every second one is dropped.
const MAX_SAMPLES: usize = 180;
/// Operations with a history: with the most samples for each that is some twenty megabytes, and rarely a tenth of it.
const MAX_HISTORIES: usize = 2000;
/// Throughput is kept for this period, with this shortest distance between two samples, in milliseconds.
const RECENT_PERIOD: i64 = 3_600_000;
const RECENT_MIN_DISTANCE: i64 = 3000;

/// The histories of operations, by uid.
#[derive(Debug, Default)]
pub struct Histories {
    histories: BTreeMap<String, Entry>,
    round: u64,
}

#[derive(Debug)]
struct Entry {
    /// The round in which it last got a sample.
    last_round: u64,
    chart: Chart,
}

impl Default for Entry {
    fn default() -> Self {
        Self { last_round: 0, chart: Chart::new(MAX_SAMPLES) }
    }
}

impl Histories {
    /// Adds a sample to the history of each running operation.
    ///
    /// Where there is no room, the histories without a sample for longest are dropped. A running operation never loses its history
    /// to another one: if there are too many, the newest have none, rather than all of them only a beginning.
    pub fn add<'k>(&mut self, samples: impl IntoIterator<Item = (&'k str, Sample)>) {
        self.round += 1;
        let mut new = Vec::new();
        for (uid, sample) in samples {
            match self.histories.get_mut(uid) {
                Some(entry) => entry.add(self.round, sample),
                None => new.push((uid, sample)),
            }
        }
        self.make_room(new.len());
        let room = MAX_HISTORIES.saturating_sub(self.histories.len());
        for (uid, sample) in new.into_iter().take(room) {
            self.histories.entry(uid.to_owned()).or_default().add(self.round, sample);
        }
    }

    fn make_room(&mut self, wanted: usize) {
        let over = (self.histories.len() + wanted).saturating_sub(MAX_HISTORIES);
        if over == 0 {
            return;
        }
        let idle = self.histories.iter().filter(|(_, entry)| entry.last_round < self.round);
        let mut idle: Vec<(u64, String)> = idle.map(|(uid, entry)| (entry.last_round, uid.clone())).collect();
        idle.sort_unstable();
        for (_, uid) in idle.into_iter().take(over) {
            self.histories.remove(&uid);
        }
    }

    /// The samples of an operation.
    pub fn of(&self, uid: &str) -> &[Sample] {
        self.histories.get(uid).map_or(&[], |entry| entry.chart.samples())
    }
}

impl Entry {
    fn add(&mut self, round: u64, sample: Sample) {
        self.last_round = round;
        self.chart.add(sample);
    }
}

/// The samples of the last hour.
#[derive(Clone, Debug, Default)]
pub struct RecentSamples {
    samples: VecDeque<Sample>,
}

impl RecentSamples {
    /// Adds a sample, unless the last one is too near, and drops those that are too old.
    pub fn add(&mut self, sample: Sample) {
        if self.samples.back().is_some_and(|last| sample.at - last.at < RECENT_MIN_DISTANCE) {
            return;
        }
        self.samples.push_back(sample);
        while self.samples.front().is_some_and(|first| sample.at - first.at > RECENT_PERIOD) {
            self.samples.pop_front();
        }
    }

    /// All samples, in order of time.
    pub fn samples(&self) -> impl DoubleEndedIterator<Item = Sample> {
        self.samples.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Sample {
        Sample { at: second * 1000, ..Sample::default() }
    }

    /// A round of so many operations, always in the same order.
    fn round(histories: &mut Histories, names: std::ops::Range<usize>, second: i64) {
        let names: Vec<String> = names.map(|number| format!("{number:05}")).collect();
        histories.add(names.iter().map(|name| (name.as_str(), at(second))));
    }

    fn lengths(histories: &Histories, names: std::ops::Range<usize>) -> Vec<usize> {
        let mut lengths: Vec<usize> = names.map(|number| histories.of(&format!("{number:05}")).len()).collect();
        lengths.dedup();
        lengths
    }

    #[test]
    fn each_of_a_thousand_operations_has_a_growing_history() {
        let mut histories = Histories::default();
        for second in 0..3 {
            round(&mut histories, 0..1000, second);
        }
        assert_eq!(lengths(&histories, 0..1000), [3]);
    }

    #[test]
    fn with_too_many_operations_the_newest_have_no_history_and_the_others_keep_theirs() {
        let mut histories = Histories::default();
        for second in 0..3 {
            round(&mut histories, 0..MAX_HISTORIES + 500, second);
        }
        assert_eq!(lengths(&histories, 0..MAX_HISTORIES), [3]);
        assert_eq!(lengths(&histories, MAX_HISTORIES..MAX_HISTORIES + 500), [0]);
        assert_eq!(histories.histories.len(), MAX_HISTORIES);
    }

    #[test]
    fn histories_of_ended_operations_are_dropped_oldest_first() {
        let mut histories = Histories::default();
        round(&mut histories, 0..100, 0);
        round(&mut histories, 100..MAX_HISTORIES, 1);
        round(&mut histories, MAX_HISTORIES..MAX_HISTORIES + 100, 2);
        assert_eq!(lengths(&histories, 0..100), [0]);
        assert_eq!(lengths(&histories, 100..MAX_HISTORIES + 100), [1]);
    }

    #[test]
    fn throughput_covers_the_last_hour() {
        let mut recent = RecentSamples::default();
        for second in 0..10_000 {
            recent.add(at(second));
        }
        let times: Vec<i64> = recent.samples().map(|sample| sample.at / 1000).collect();
        assert!(
            times[0] >= 9999 - 3600 && times[times.len() - 1] >= 9997,
            "{} to {}",
            times[0],
            times[times.len() - 1]
        );
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 3));
    }
}
