//! What is remembered from one snapshot to the next: what was shown, how fast it went, when it last moved.

use std::time::Duration;

use crate::counts::Counts;
use crate::gain::{Activity, Change, GainTracker, Gains};
use crate::queue::Outlook;
use crate::rate::Window;
use crate::snapshot::{Node, Snapshot};
use crate::snapshot_builder::{self, Draft};
use crate::stall::Cadence;
use crate::token::Sequence;
use crate::tree::Tree;
use crate::tree_order::TreeOrder;

/// The memory of all tasks, by their index in the tree.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    tracks: Vec<Track>,
    /// Room for the next snapshot, kept because asking for megabytes anew each time costs more than filling them.
    drafts: Vec<Draft>,
    order: TreeOrder,
    sequence: Sequence,
}

/// The memory of one task.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// What was shown last: floors from now on.
    pub(crate) shown: Vec<Counts>,
    /// The greatest percentage shown, in hundredths; nothing before the first.
    pub(crate) percent: Option<u16>,
    /// The greatest share shown, and the one that was last computed: what the task above counts.
    pub(crate) fraction: f64,
    pub(crate) computed: f64,
    /// When its queue was last simulated, with so many transfers, and what came of it.
    pub(crate) outlook: Option<(Duration, usize, Option<Outlook>)>,
    pub(crate) window: Window,
    pub(crate) cadence: Cadence,
    pub(crate) gain: GainTracker,
    counted: Fingerprint,
    signalled: Option<Duration>,
    /// When it last advanced, as of the last snapshot.
    advanced: Duration,
}

/// What it means that a task is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// It should go on.
    Counts,
    /// It waits for its turn, or its work sends no signal by nature.
    Expected,
    /// It is not at work.
    Ended,
}

/// Enough of a task's readings to see that they changed. The counters only rise, so their sum tells; totals may go both
/// ways, but hardly so that their sum with the kinds stays the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fingerprint {
    settled: u64,
    totals: u64,
}

impl Fingerprint {
    fn change_to(self, later: &Self) -> Change {
        match (self.totals == later.totals, self.settled == later.settled) {
            (false, _) => Change::Totals,
            (true, false) => Change::Settled,
            (true, true) => Change::None,
        }
    }

    fn of(counted: &[Counts]) -> Self {
        counted.iter().fold(Self::default(), |sum, counts| Self {
            settled: sum.settled.wrapping_add(counts.settled()),
            totals: sum
                .totals
                .wrapping_mul(31)
                .wrapping_add(counts.total.value().map_or(0, |total| total.wrapping_add(1))),
        })
    }
}

impl Sampler {
    pub(crate) fn snapshot(&mut self, tree: &Tree) -> Snapshot {
        let cells = tree.cells();
        self.tracks.resize_with(cells.len(), Track::default);
        self.order.update(&cells);
        snapshot_builder::snapshot(tree, &cells, &self.order, &mut self.tracks, &mut self.drafts, &mut self.sequence)
    }

    /// Nothing shown for this task may fall below what `saved` showed.
    pub(crate) fn set_floor(&mut self, index: usize, saved: &Node) {
        if self.tracks.len() <= index {
            self.tracks.resize_with(index + 1, Track::default);
        }
        let track = &mut self.tracks[index];
        track.shown.clone_from(&saved.meters);
        if let Some(percent) = saved.percent {
            track.percent = Some(percent.hundredths());
            track.fraction = percent.fraction();
            track.computed = track.fraction;
        }
    }
}

impl Track {
    /// Notes whether the task has moved since the last look, and answers when it last did.
    pub(crate) fn observe(
        &mut self,
        now: Duration,
        signals: (Duration, Activity),
        counts: &[Counts],
        patience: Duration,
        silence: Silence,
    ) -> (Duration, Gains) {
        let counted = Fingerprint::of(counts);
        let gains = match silence {
            Silence::Ended => self.gain.last(),
            silence => {
                let change = self.counted.change_to(&counted);
                self.gain.observe(now, counts, change, signals.1, silence == Silence::Expected)
            }
        };
        (self.advance(now, signals.0, counted, patience), gains)
    }

    fn advance(&mut self, now: Duration, signalled: Duration, counted: Fingerprint, patience: Duration) -> Duration {
        let Some(before) = self.signalled.replace(signalled) else {
            self.counted = counted;
            self.advanced = if counted.settled > 0 { now } else { signalled };
            return self.advanced;
        };
        let moved = (self.counted != counted).then_some(now);
        let signal = (signalled != before).then_some(signalled);
        self.counted = counted;
        if let Some(at) = moved.max(signal).filter(|at| *at > self.advanced) {
            self.cadence.note(at.saturating_sub(self.advanced), patience);
            self.advanced = at;
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
