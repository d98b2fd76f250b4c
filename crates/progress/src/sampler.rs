//! What is remembered from one snapshot to the next: what was shown, how fast it went, when it last moved.

use std::time::Duration;

use crate::assemble;
use crate::counts::Counts;
use crate::rate::Window;
use crate::snapshot::{Node, Snapshot};
use crate::stall::Cadence;
use crate::tree::Tree;

/// The memory of all tasks, by their index in the tree.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    tracks: Vec<Track>,
}

/// The memory of one task.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// What was shown last: floors from now on.
    pub(crate) shown: Vec<Counts>,
    /// The greatest percentage shown, in hundredths.
    pub(crate) percent: u16,
    /// The greatest share shown.
    pub(crate) fraction: f64,
    pub(crate) window: Window,
    pub(crate) cadence: Cadence,
    counted: Vec<Counts>,
    signalled: Option<Duration>,
    /// When it last advanced, as far as anybody looked.
    advanced: Duration,
}

impl Sampler {
    pub(crate) fn snapshot(&mut self, tree: &Tree) -> Snapshot {
        let cells = tree.cells();
        self.tracks.resize_with(cells.len(), Track::default);
        assemble::snapshot(tree, &cells, &mut self.tracks)
    }

    /// Nothing shown for this task may fall below what `saved` showed.
    pub(crate) fn set_floor(&mut self, index: usize, saved: &Node) {
        if self.tracks.len() <= index {
            self.tracks.resize_with(index + 1, Track::default);
        }
        let track = &mut self.tracks[index];
        track.shown.clone_from(&saved.meters);
        if let Some(percent) = saved.percent {
            track.percent = percent.hundredths();
            track.fraction = percent.fraction();
        }
    }
}

impl Track {
    /// Notes whether the task has moved since the last look, and answers when it last did.
    pub(crate) fn observe(
        &mut self,
        now: Duration,
        signalled: Duration,
        counted: &[Counts],
        patience: Duration,
    ) -> Duration {
        let Some(before) = self.signalled else {
            self.signalled = Some(signalled);
            self.counted = counted.to_vec();
            self.advanced = if counted.iter().any(|counts| counts.settled() > 0) { now } else { signalled };
            return self.advanced;
        };
        let moved = if self.counted != counted { Some(now) } else { None };
        let signal = (signalled != before).then_some(signalled);
        if let Some(at) = moved.max(signal).filter(|at| *at > self.advanced) {
            self.cadence.note(at - self.advanced, patience);
            self.advanced = at;
        }
        self.signalled = Some(signalled);
        if moved.is_some() {
            self.counted.clear();
            self.counted.extend_from_slice(counted);
        }
        self.advanced
    }

    /// The reading as it may be shown.
    pub(crate) fn show(&mut self, counted: Counts, ended_well: bool) -> Counts {
        let position = self.shown.iter().position(|shown| shown.unit == counted.unit);
        let shown = match position {
            Some(position) => counted.raised_over(&self.shown[position]),
            None => counted.raised_over(&Counts::zero(counted.unit)),
        };
        let shown = if ended_well { shown.ended_well() } else { shown };
        match position {
            Some(position) => self.shown[position] = shown,
            None => self.shown.push(shown),
        }
        shown
    }
}
