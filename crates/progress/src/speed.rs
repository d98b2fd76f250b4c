//! How fast the whole goes and how long it will take: the one answer that every rendering gives.

use serde::{Deserialize, Serialize};

use crate::counts::Unit;
use crate::rate::TimeLeft;
use crate::snapshot::{Node, Snapshot, parents};
use crate::view::{left_text, rate_text};

/// How fast an operation goes, and how long it will take.
///
/// An operation's root counts nothing itself. Its rate is that of the tasks at work together: of those that move bytes, or, where none
/// does, of those that count what the first one that goes on counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speed {
    /// So many a second.
    pub rate: Option<u64>,
    /// Of what.
    pub unit: Unit,
    /// How long it will take from now.
    pub left: Option<TimeLeft>,
}

impl Speed {
    /// `35.1 MiB/s`, or empty.
    pub fn rate_text(&self) -> String {
        self.rate.map(|rate| rate_text(rate, self.unit)).unwrap_or_default()
    }

    /// `2m to 4m`, or empty.
    pub fn left_text(&self) -> String {
        self.left.map(left_text).unwrap_or_default()
    }
}

impl Snapshot {
    /// How fast the whole goes, and how long it will take. Nothing once it has ended.
    pub fn speed(&self) -> Speed {
        if let Some(whole) = &self.whole {
            return whole.speed;
        }
        let open = self.state().is_open();
        let is_working = |node: &Node| open && node.state.is_active() && node.rate.is_some();
        let working = || self.nodes.iter().filter(|node| is_working(node));
        // What stands still does not speak for what goes on.
        let moving = working().filter(|node| node.rate > Some(0));
        let unit = spoken_unit(moving).or_else(|| spoken_unit(working()));
        let unit = unit.unwrap_or_else(|| if self.sum(Unit::Bytes).is_some() { Unit::Bytes } else { Unit::Items });
        let speaking = self.topmost(|node| is_working(node) && unit_of(node) == Some(unit));
        let rate = speaking.iter().filter_map(|node| node.rate).reduce(u64::saturating_add);
        let left = self.root().and_then(|root| root.left);
        Speed { rate, unit, left: left.filter(|_| open && self.stall.is_none()) }
    }

    /// The nodes of which this holds, without those below another one: they are in its number already.
    fn topmost(&self, holds: impl Fn(&Node) -> bool) -> Vec<&Node> {
        let mut inside: Vec<bool> = Vec::with_capacity(self.nodes.len());
        let mut found = Vec::new();
        for (node, parent) in self.nodes.iter().zip(parents(&self.nodes)) {
            let below = parent.is_some_and(|parent| inside[parent]);
            let counts = holds(node);
            if counts && !below {
                found.push(node);
            }
            inside.push(below || counts);
        }
        found
    }
}

/// Bytes if any of them counts those, else what the first one counts.
fn spoken_unit<'n>(nodes: impl Iterator<Item = &'n Node>) -> Option<Unit> {
    let units: Vec<Unit> = nodes.filter_map(unit_of).collect();
    if units.contains(&Unit::Bytes) { Some(Unit::Bytes) } else { units.first().copied() }
}

fn unit_of(node: &Node) -> Option<Unit> {
    node.primary().map(|counts| counts.unit)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Ending, Operation, Total, Unit, VirtualClock};

    #[test]
    fn volumes_speak_together_items_only_where_nothing_moves_bytes_and_nothing_speaks_after_the_end() {
        let clock = VirtualClock::new();
        let operation = Operation::new("backup-x", clock.clock());
        let reading = operation.root().child("reading");
        let items = reading.meter(Unit::Items);
        items.set_total(Total::Final(1000));
        let run = |step: &dyn Fn()| {
            for _ in 0..20 {
                step();
                clock.advance(Duration::from_secs(1));
                operation.snapshot();
            }
        };
        run(&|| items.add(10));
        let speed = operation.snapshot().speed();
        assert_eq!((speed.rate, speed.unit), (Some(10), Unit::Items));
        assert_eq!(speed.rate_text(), "10 items/s");

        let volumes = operation.root().child("volumes");
        let tasks = ["a", "b"].map(|name| volumes.child(name));
        let meters = tasks.each_ref().map(|task| {
            let meter = task.meter(Unit::Bytes);
            meter.set_total(Total::Final(1000 << 20));
            meter
        });
        run(&|| {
            items.add(10);
            for meter in &meters {
                meter.add(1 << 20);
            }
        });
        let speed = operation.snapshot().speed();
        assert_eq!((speed.rate_text().as_str(), speed.unit), ("2.0 MiB/s", Unit::Bytes), "{speed:?}");
        assert!(speed.left.is_some_and(|left| left.high >= 900), "{speed:?}");

        operation.end(Ending::Succeeded);
        let speed = operation.snapshot().speed();
        assert_eq!((speed.rate, speed.left), (None, None));
    }
}
