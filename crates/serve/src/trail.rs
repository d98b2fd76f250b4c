//! What an operation's numbers were, for charts: few points, however long it takes.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

/// When there are so many points, every second one goes.
const MOST_POINTS: usize = 180;
/// Two points are never nearer to each other than so many milliseconds.
const NEAREST: i64 = 450;
/// So many operations have a trail: with so many points each that is some twenty megabytes, and seldom a tenth of it.
const MOST_TRAILS: usize = 2000;
/// Throughput is kept for so many milliseconds, with points no nearer than this.
const RECENT: i64 = 3_600_000;
const RECENT_NEAREST: i64 = 3000;

/// The numbers at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Point {
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// Bytes a second, or what it counts instead.
    pub rate: u64,
    /// Seconds left, at least and at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<[u64; 2]>,
    /// Percent, in hundredths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u16>,
}

/// Points in order of time.
#[derive(Clone, Debug, Default)]
struct Trail {
    points: Vec<Point>,
    apart: i64,
}

impl Trail {
    /// Adds a point, unless the last one is too near.
    fn add(&mut self, point: Point) {
        if self.points.last().is_some_and(|last| point.at - last.at < self.apart.max(NEAREST)) {
            return;
        }
        self.points.push(point);
        if self.points.len() >= MOST_POINTS {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            let (first, last) = (self.points[0].at, self.points[self.points.len() - 1].at);
            // As far apart as those that stay are on average.
            self.apart = (last - first) / i64::try_from(self.points.len()).unwrap_or(1).max(1);
        }
    }
}

/// The trails of operations, by uid.
#[derive(Debug, Default)]
pub struct Trails {
    trails: BTreeMap<String, Kept>,
    round: u64,
}

#[derive(Debug, Default)]
struct Kept {
    /// The round in which it last grew.
    grew: u64,
    trail: Trail,
}

impl Trails {
    /// Adds a point to the trail of each operation that is open now.
    ///
    /// Where there is no room, the trails that have not grown for longest make it. One that grows is never given up for another: if
    /// there are too many, the last to come have none, rather than all of them nothing but a beginning.
    pub fn add<'k>(&mut self, now: impl IntoIterator<Item = (&'k str, Point)>) {
        self.round += 1;
        let mut new = Vec::new();
        for (uid, point) in now {
            match self.trails.get_mut(uid) {
                Some(kept) => kept.grow(self.round, point),
                None => new.push((uid, point)),
            }
        }
        self.make_room(new.len());
        let room = MOST_TRAILS.saturating_sub(self.trails.len());
        for (uid, point) in new.into_iter().take(room) {
            self.trails.entry(uid.to_owned()).or_default().grow(self.round, point);
        }
    }

    fn make_room(&mut self, wanted: usize) {
        let over = (self.trails.len() + wanted).saturating_sub(MOST_TRAILS);
        if over == 0 {
            return;
        }
        let idle = self.trails.iter().filter(|(_, kept)| kept.grew < self.round);
        let mut idle: Vec<(u64, String)> = idle.map(|(uid, kept)| (kept.grew, uid.clone())).collect();
        idle.sort_unstable();
        for (_, uid) in idle.into_iter().take(over) {
            self.trails.remove(&uid);
        }
    }

    /// The points of an operation.
    pub fn of(&self, uid: &str) -> &[Point] {
        self.trails.get(uid).map_or(&[], |kept| &kept.trail.points)
    }
}

impl Kept {
    fn grow(&mut self, round: u64, point: Point) {
        self.grew = round;
        self.trail.add(point);
    }
}

/// The points of the last hour.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    points: VecDeque<Point>,
}

impl Recent {
    /// Adds a point, unless the last one is too near, and forgets what is too old.
    pub fn add(&mut self, point: Point) {
        if self.points.back().is_some_and(|last| point.at - last.at < RECENT_NEAREST) {
            return;
        }
        self.points.push_back(point);
        while self.points.front().is_some_and(|first| point.at - first.at > RECENT) {
            self.points.pop_front();
        }
    }

    /// All of them, in order of time.
    pub fn points(&self) -> impl DoubleEndedIterator<Item = Point> {
        self.points.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Point {
        Point { at: second * 1000, ..Point::default() }
    }

    #[test]
    fn a_long_trail_keeps_its_beginning_and_its_end_with_few_points() {
        let mut trail = Trail::default();
        for second in 0..100_000 {
            trail.add(at(second));
        }
        let points = &trail.points;
        assert!(points.len() < MOST_POINTS && points.len() >= MOST_POINTS / 4, "{}", points.len());
        assert_eq!(points[0].at, 0);
        assert!(points[points.len() - 1].at > 98_000_000);
        assert!(points.windows(2).all(|pair| pair[0].at < pair[1].at));
    }

    /// A round of so many operations, always in the same order.
    fn round(trails: &mut Trails, names: std::ops::Range<usize>, second: i64) {
        let names: Vec<String> = names.map(|number| format!("{number:05}")).collect();
        trails.add(names.iter().map(|name| (name.as_str(), at(second))));
    }

    fn lengths(trails: &Trails, names: std::ops::Range<usize>) -> Vec<usize> {
        let mut lengths: Vec<usize> = names.map(|number| trails.of(&format!("{number:05}")).len()).collect();
        lengths.dedup();
        lengths
    }

    #[test]
    fn every_one_of_a_thousand_operations_has_a_trail_that_grows() {
        let mut trails = Trails::default();
        for second in 0..3 {
            round(&mut trails, 0..1000, second);
        }
        assert_eq!(lengths(&trails, 0..1000), [3]);
    }

    #[test]
    fn where_there_are_too_many_the_last_to_come_have_none_and_the_others_all_they_had() {
        let mut trails = Trails::default();
        for second in 0..3 {
            round(&mut trails, 0..MOST_TRAILS + 500, second);
        }
        assert_eq!(lengths(&trails, 0..MOST_TRAILS), [3]);
        assert_eq!(lengths(&trails, MOST_TRAILS..MOST_TRAILS + 500), [0]);
        assert_eq!(trails.trails.len(), MOST_TRAILS);
    }

    #[test]
    fn what_has_ended_makes_room_the_longest_ago_first() {
        let mut trails = Trails::default();
        round(&mut trails, 0..100, 0);
        round(&mut trails, 100..MOST_TRAILS, 1);
        round(&mut trails, MOST_TRAILS..MOST_TRAILS + 100, 2);
        assert_eq!(lengths(&trails, 0..100), [0]);
        assert_eq!(lengths(&trails, 100..MOST_TRAILS + 100), [1]);
    }

    #[test]
    fn throughput_is_that_of_the_last_hour() {
        let mut recent = Recent::default();
        for second in 0..10_000 {
            recent.add(at(second));
        }
        let times: Vec<i64> = recent.points().map(|point| point.at / 1000).collect();
        assert!(
            times[0] >= 9999 - 3600 && times[times.len() - 1] >= 9997,
            "{} to {}",
            times[0],
            times[times.len() - 1]
        );
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 3));
    }
}
