//! Plays a run on the virtual clock, and looks at it as a person would.

use std::time::Duration;

use plimsoll_progress::{Meter, Operation, Total, Unit, VirtualClock, Wait};

use super::{Reading, Run, seconds};

/// What was said at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Seconds since the start.
    pub at: f64,
    pub settled: u64,
    /// The range that was shown, in seconds.
    pub ours: Option<(f64, f64)>,
    pub linear: Option<f64>,
    pub window: Option<f64>,
    pub stalled: bool,
    /// It was not in a pause.
    pub moving: bool,
}

struct Stage {
    clock: VirtualClock,
    operation: Operation,
    meter: Meter,
    wait: Option<Wait>,
    signs: u64,
}

impl Stage {
    fn new() -> Self {
        let clock = VirtualClock::new();
        let operation = Operation::new("transfer", clock.clock());
        let meter = operation.root().meter(Unit::Bytes);
        Self { clock, operation, meter, wait: None, signs: 0 }
    }

    /// Another process takes over from the one that was killed.
    fn take_over(&mut self) {
        let saved = self.operation.snapshot();
        let (operation, gap) = Operation::resume(&saved, "the one before", self.clock.clock());
        gap.end();
        self.meter = operation.root().meter(Unit::Bytes);
        self.operation = operation;
    }

    fn set(&mut self, reading: &Reading) {
        let so_far = self.clock.now();
        self.clock.advance(Duration::from_millis(reading.at).saturating_sub(so_far));
        if reading.taken_over {
            self.take_over();
        }
        let total = if reading.growing { Total::Growing(reading.total) } else { Total::Final(reading.total) };
        if reading.total > 0 {
            self.meter.set_total(total);
        }
        self.meter.set_done(reading.settled);
        if reading.signs != self.signs {
            self.signs = reading.signs;
            self.operation.root().touch();
        }
        match (reading.waiting, self.wait.is_some()) {
            (true, false) => self.wait = Some(self.operation.root().wait_in_queue("paused by its user")),
            (false, true) => self.wait = None,
            _ => {}
        }
    }
}

/// What is said about a run, at each of its readings.
pub fn play(run: &Run) -> Vec<Look> {
    let mut stage = Stage::new();
    let mut looks: Vec<Look> = Vec::with_capacity(run.readings.len());
    let mut base = run.readings.first().map_or((0.0, 0), |first| (seconds(first.at), first.settled));
    for reading in &run.readings {
        stage.set(reading);
        let snapshot = stage.operation.snapshot();
        let at = seconds(reading.at);
        if reading.taken_over {
            base = (at, 0);
        }
        let remaining = difference(reading.total, reading.settled);
        let known = reading.total > 0;
        let since = |(from, settled): (f64, u64)| left(remaining, difference(reading.settled, settled), at - from);
        let edge = looks.iter().rev().take_while(|look| at - look.at <= 30.0 && look.at >= base.0).last();
        let edge = edge.map(|look| (look.at, look.settled.min(reading.settled)));
        let moving = !reading.waiting
            && looks.iter().rev().take_while(|look| at - look.at < 10.0).any(|look| look.settled != reading.settled);
        looks.push(Look {
            at,
            settled: reading.settled,
            ours: snapshot.nodes[0].left.map(|left| (whole(left.low), whole(left.high))),
            linear: known.then(|| since(base)).flatten(),
            window: edge.filter(|_| known).and_then(since),
            stalled: snapshot.stall.is_some(),
            moving,
        });
    }
    looks
}

/// The longest interval between two advances before `until`: the cadence that a hung run is measured by.
pub fn cadence(looks: &[Look], until: f64) -> f64 {
    let mut last = (0.0, 0);
    let mut longest: f64 = 0.0;
    for look in looks.iter().filter(|look| look.at <= until) {
        if look.settled != last.1 {
            longest = longest.max(look.at - last.0);
            last = (look.at, look.settled);
        }
    }
    longest
}

fn left(remaining: f64, done: f64, elapsed: f64) -> Option<f64> {
    (done > 0.0 && elapsed > 0.0).then(|| remaining * elapsed / done)
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
fn whole(number: u64) -> f64 {
    number as f64
}

fn difference(more: u64, less: u64) -> f64 {
    whole(more.saturating_sub(less))
}
