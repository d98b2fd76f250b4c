//! What an operation's numbers were, for charts: few points, however long it takes.

use std::collections::BTreeMap;

use serde::Serialize;

/// When there are so many points, every second one goes.
const MOST_POINTS: usize = 360;
/// Two points are never nearer to each other than so many milliseconds.
const NEAREST: i64 = 450;
/// So many operations have a trail.
const MOST_TRAILS: usize = 400;

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
pub struct Trail {
    points: Vec<Point>,
    apart: i64,
}

impl Trail {
    /// Adds a point, unless the last one is too near.
    pub fn add(&mut self, point: Point) {
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

    /// All points.
    pub fn points(&self) -> &[Point] {
        &self.points
    }
}

/// The trails of operations, by key. The ones that were looked at last are kept.
#[derive(Debug, Default)]
pub struct Trails {
    trails: BTreeMap<String, (u64, Trail)>,
    turn: u64,
}

impl Trails {
    /// Adds a point to the trail of an operation.
    pub fn add(&mut self, key: &str, point: Point) {
        self.turn += 1;
        let (turn, trail) = self.trails.entry(key.to_owned()).or_default();
        *turn = self.turn;
        trail.add(point);
        if self.trails.len() > MOST_TRAILS {
            let oldest = self.trails.iter().min_by_key(|(_, (turn, _))| *turn).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.trails.remove(&key));
        }
    }

    /// The points of an operation.
    pub fn of(&self, key: &str) -> &[Point] {
        self.trails.get(key).map_or(&[], |(_, trail)| trail.points())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_trail_keeps_its_beginning_and_its_end_with_few_points() {
        let mut trail = Trail::default();
        for second in 0..100_000_i64 {
            trail.add(Point { at: second * 1000, ..Point::default() });
        }
        let points = trail.points();
        assert!(points.len() < MOST_POINTS && points.len() >= MOST_POINTS / 4, "{}", points.len());
        assert_eq!(points[0].at, 0);
        assert!(points[points.len() - 1].at > 98_000_000);
        assert!(points.windows(2).all(|pair| pair[0].at < pair[1].at));
    }

    #[test]
    fn only_so_many_operations_have_a_trail() {
        let mut trails = Trails::default();
        for number in 0..MOST_TRAILS + 50 {
            trails.add(&number.to_string(), Point::default());
        }
        assert_eq!(trails.trails.len(), MOST_TRAILS);
        assert!(trails.of("0").is_empty() && !trails.of(&(MOST_TRAILS + 49).to_string()).is_empty());
    }
}
