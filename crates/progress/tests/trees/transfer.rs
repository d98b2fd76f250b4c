//! One transfer of a played operation: what really happens to it, and what its task says.

use std::time::Duration;

use plimsoll_progress::{Basis, Meter, Task, Total, Unit, Wait, Work};

use super::world::{Cluster, Volume, Weather};

/// What is assumed of a transfer before any was seen.
pub const USUAL_SPEED: f64 = 50e6;
pub const USUAL_FIXED: Duration = Duration::from_secs(5);
/// Unchanged data is passed over this many times as fast as changed data is stored.
const UNCHANGED_FACTOR: f64 = 8.0;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Queued,
    /// So many seconds to the first byte.
    Before(f64),
    Moving,
    /// So many seconds to the end.
    After(f64),
    Ended,
}

/// A transfer.
pub struct Transfer {
    volume: Volume,
    incremental: bool,
    phase: Phase,
    done: f64,
    /// What is stored already, by a process that was killed.
    stored: f64,
    fails_at: Option<f64>,
    task: Task,
    wait: Option<Wait>,
    meter: Option<Meter>,
    total_known_at: f64,
    age: f64,
}

impl Transfer {
    /// Plans it below a stage.
    pub fn plan(stage: &Task, name: &str, volume: &Volume, size: (u64, Basis), incremental: bool) -> Self {
        let task = stage.planned(name);
        task.plan(Work::amount(size.0, USUAL_SPEED, size.1).with_fixed(USUAL_FIXED));
        task.runs_on(format!("node-{}", volume.node));
        let volume = volume.clone();
        let (fails_at, wait, meter) = (None, None, None);
        Self {
            total_known_at: volume.before + 2.0,
            volume,
            incremental,
            phase: Phase::Queued,
            done: 0.0,
            stored: 0.0,
            fails_at,
            task,
            wait,
            meter,
            age: 0.0,
        }
    }

    pub fn fail_halfway(&mut self) {
        self.fails_at = Some(self.volume.bytes / 2.0);
    }

    /// The server that follows it is another one.
    pub fn follow_in(&mut self, stage: &Task) {
        if self.is_open() {
            (self.wait, self.meter) = (None, None);
            let task = if self.phase == Phase::Queued {
                stage.planned(self.task.name())
            } else {
                stage.child(self.task.name())
            };
            task.runs_on(format!("node-{}", self.volume.node));
            task.plan(Work::amount(self.known_total(), USUAL_SPEED, Basis::Estimated).with_fixed(USUAL_FIXED));
            self.task = task;
            self.show();
        }
    }

    fn known_total(&self) -> u64 {
        whole(self.volume.bytes)
    }

    /// Its process is killed: it begins again.
    pub fn restart(&mut self) {
        if matches!(self.phase, Phase::Moving | Phase::After(_) | Phase::Before(_)) {
            self.stored = self.stored.max(self.done);
            (self.done, self.phase) = (0.0, Phase::Before(self.volume.before));
        }
    }

    pub fn is_open(&self) -> bool {
        self.phase != Phase::Ended
    }

    pub fn is_active(&self) -> bool {
        self.is_open() && self.phase != Phase::Queued
    }

    pub fn node(&self) -> usize {
        self.volume.node
    }

    pub fn start(&mut self) {
        self.phase = Phase::Before(self.volume.before);
        self.wait = None;
        self.task.start();
    }

    /// It is requested and waits for its turn.
    pub fn request(&mut self) {
        self.task.start();
        self.wait = Some(self.task.wait_in_queue("queued behind other transfers of its node"));
    }

    /// Lets seconds pass. Says how many bytes were moved.
    pub fn pass(&mut self, mut seconds: f64, cluster: &Cluster, weather: &mut Weather, beside: usize) -> f64 {
        let before = self.done;
        self.age += if self.is_active() { seconds } else { 0.0 };
        while seconds > 0.0 && self.is_active() {
            seconds -= match &mut self.phase {
                Phase::Before(left) | Phase::After(left) if *left > seconds => {
                    *left -= seconds;
                    seconds
                }
                Phase::Before(left) => {
                    let spent = *left;
                    self.phase = Phase::Moving;
                    spent
                }
                Phase::After(left) => {
                    let spent = *left;
                    self.end(true);
                    spent
                }
                Phase::Moving => self.move_bytes(seconds, cluster, weather, beside),
                Phase::Queued | Phase::Ended => seconds,
            };
        }
        self.show();
        (self.done - before).max(0.0)
    }

    fn move_bytes(&mut self, seconds: f64, cluster: &Cluster, weather: &mut Weather, beside: usize) -> f64 {
        let mut speed = weather.speed(cluster, &self.volume, beside) * weather.noisy();
        if self.incremental {
            speed /= self.volume.changed + (1.0 - self.volume.changed) / UNCHANGED_FACTOR;
        }
        let again = self.done < self.stored;
        if again {
            speed *= 2.0 * UNCHANGED_FACTOR;
        }
        let edge = if again { self.stored } else { self.fails_at.unwrap_or(self.volume.bytes) };
        let needed = (edge - self.done) / speed;
        if needed > seconds {
            self.done += speed * seconds;
            return seconds;
        }
        self.done = edge;
        match self.fails_at {
            _ if again => self.stored = 0.0,
            Some(_) => self.end(false),
            None => self.phase = Phase::After(self.volume.after),
        }
        needed.max(1e-6)
    }

    fn end(&mut self, well: bool) {
        self.show();
        self.phase = Phase::Ended;
        if well { self.task.finish() } else { self.task.fail("no space left on device") }
    }

    /// What its task says: at first the total is an estimate, as from a scan.
    fn show(&mut self) {
        // A snapshot before it and a flush after it send no signal.
        match self.phase {
            Phase::Before(_) | Phase::After(_) => self.task.quiet(),
            Phase::Queued | Phase::Moving | Phase::Ended => self.task.loud(),
        }
        if !matches!(self.phase, Phase::Moving | Phase::After(_)) {
            return;
        }
        let total = self.known_total();
        let known = self.age >= self.total_known_at;
        let meter = self.meter.get_or_insert_with(|| self.task.meter(Unit::Bytes));
        meter.set_total(if known { Total::Final(total) } else { Total::Growing(total) });
        meter.set_done(whole(self.done).min(total));
        // The process that passes over what is stored counts from the start again, below what is shown.
        if self.done < self.stored {
            self.task.touch();
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes up to a terabyte")]
pub fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}
