//! Plays work that is quiet by nature, slow, or busy without gain, and counts what is called a stall.

use std::time::Duration;

use plimsoll_progress::{Meter, Operation, StallReason, Task, Total, Unit, VirtualClock, Wait};

use super::dice::Dice;

/// A stall must be named within this time.
const NAMED_WITHIN: u64 = 300;
/// So many seconds between two looks.
const LOOK: u64 = 1;
const MIB: u64 = 1 << 20;

/// What healthy work does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Healthy {
    /// Bytes and files, now faster and now slower.
    Moves,
    /// Many small files after large ones.
    SmallFiles,
    /// The size of the work is measured.
    Scans,
    /// Silence just short of a stall.
    Hiccups,
    /// It tries again for less than three minutes, and succeeds.
    Retries,
    /// Packs that take minutes on a slow connection: their bytes are counted once they are stored.
    SlowPacks,
    /// A program that prints its bytes with one decimal.
    CoarseCounter,
    Hook,
    Flush,
    CsiSnapshot,
    Completion,
    Plugin,
    Queue,
}

impl Healthy {
    const ALL: [Self; 13] = [
        Self::Moves,
        Self::SmallFiles,
        Self::Scans,
        Self::Hiccups,
        Self::Retries,
        Self::SlowPacks,
        Self::CoarseCounter,
        Self::Hook,
        Self::Flush,
        Self::CsiSnapshot,
        Self::Completion,
        Self::Plugin,
        Self::Queue,
    ];
}

/// What goes wrong, and never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The holder of a lock is dead; it is asked for again and again.
    DeadLock,
    /// The same data is sent again and again.
    Resends,
    /// A request fails and is repeated.
    Retries,
    /// A program reads and writes, and counts nothing.
    ProgramLoops,
    /// A byte a second.
    Trickle,
    /// Nothing at all.
    Hangs,
}

impl Fault {
    pub const ALL: [Self; 6] =
        [Self::DeadLock, Self::Resends, Self::Retries, Self::ProgramLoops, Self::Trickle, Self::Hangs];

    pub fn name(self) -> &'static str {
        match self {
            Self::DeadLock => "a lock whose holder is dead",
            Self::Resends => "the same data sent again and again",
            Self::Retries => "a request repeated without success",
            Self::ProgramLoops => "a program that moves bytes and counts nothing",
            Self::Trickle => "a trickle of 1 B/s",
            Self::Hangs => "nothing moves",
        }
    }
}

/// How long it took to name one kind of fault in the worst run, and as what.
#[derive(Clone, Debug)]
pub struct Named {
    pub fault: Fault,
    pub runs: u64,
    /// In seconds; nothing if one was not named at all.
    pub worst: Option<u64>,
    pub median: u64,
}

impl Named {
    pub fn is_in_time(&self) -> bool {
        self.worst.is_some_and(|worst| worst <= NAMED_WITHIN)
    }
}

/// What is wrong about the stalls of many runs.
#[derive(Clone, Debug)]
pub struct StallFigures {
    pub healthy: u64,
    /// Healthy runs that were called stalled: the seed, when and why.
    pub false_stalls: Vec<String>,
    pub named: Vec<Named>,
}

/// Plays so many healthy runs, and a tenth of that for each fault.
pub fn grade(healthy: u64) -> StallFigures {
    let false_stalls = (0..healthy).filter_map(|seed| Player::new(seed).false_stall(seed)).collect();
    let named = Fault::ALL.map(|fault| {
        let runs = (healthy / 10).max(20);
        let mut times: Vec<Option<u64>> =
            (0..runs).map(|seed| Player::new(healthy + seed).named_after(fault)).collect();
        times.sort_by_key(|time| time.unwrap_or(u64::MAX));
        let at = |index: usize| times.get(index).copied().flatten();
        let last = times.len() - 1;
        Named { fault, runs, worst: at(last), median: at(last / 2).unwrap_or(u64::MAX) }
    });
    StallFigures { healthy, false_stalls, named: named.into() }
}

struct Player {
    dice: Dice,
    clock: VirtualClock,
    operation: Operation,
    task: Task,
    bytes: Meter,
    files: Meter,
    speed: u64,
}

impl Player {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed.wrapping_mul(6151).wrapping_add(17));
        let clock = VirtualClock::new();
        let operation = Operation::new("played", clock.clock());
        let task = operation.root().child("volumes").child("demo/data");
        let (bytes, files) = (task.meter(Unit::Bytes), task.meter(Unit::Files));
        // From 64 KiB/s to 1 GiB/s.
        let speed = 1 << (16 + dice.below(15));
        Self { dice, clock, operation, task, bytes, files, speed }
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        let room = usize::try_from(high - low + 1).unwrap_or(1);
        low + self.dice.below(room) as u64
    }

    /// Lets a second pass. Says why it is called stalled, if it is.
    fn second(&mut self) -> Option<StallReason> {
        self.clock.advance(Duration::from_secs(LOOK));
        self.operation.snapshot().stall.map(|stall| stall.reason)
    }

    /// Lets seconds pass, with something done in each of them. Says why it is called stalled, if it is.
    fn seconds(&mut self, seconds: u64, mut each: impl FnMut(&mut Self, u64)) -> Option<StallReason> {
        (0..seconds).find_map(|second| {
            each(self, second);
            self.second()
        })
    }

    fn false_stall(mut self, seed: u64) -> Option<String> {
        self.bytes.set_total(Total::Growing(1 << 50));
        for _ in 0..self.between(2, 4) {
            let phase = Healthy::ALL[self.dice.below(Healthy::ALL.len())];
            if let Some(reason) = self.play(phase) {
                let at = self.clock.now().as_secs();
                return Some(format!("seed {seed}: {phase:?} is called {} after {at} s", reason.reason()));
            }
        }
        None
    }

    fn named_after(mut self, fault: Fault) -> Option<u64> {
        self.bytes.set_total(Total::Final(1 << 50));
        for _ in 0..self.between(0, 2) {
            let phase = [Healthy::Moves, Healthy::Flush, Healthy::Queue][self.dice.below(3)];
            self.play(phase);
        }
        self.bytes.add(u64::from(fault != Fault::Trickle));
        let (pause, mut wait) = (self.between(2, 60), None);
        (0..2 * NAMED_WITHIN).find(|second| {
            self.fail(fault, *second, pause, &mut wait);
            self.second().is_some()
        })
    }

    /// A second of healthy work of some kind.
    fn play(&mut self, phase: Healthy) -> Option<StallReason> {
        match phase {
            Healthy::Moves => {
                let seconds = self.between(20, 400);
                self.seconds(seconds, |this, _| this.move_bytes())
            }
            Healthy::SmallFiles => {
                let large = self.seconds(60, |this, _| this.bytes.add(this.speed));
                let (seconds, files) = (self.between(60, 900), self.between(10, 500));
                large.or_else(|| {
                    self.seconds(seconds, |this, _| {
                        this.files.add(files);
                        this.bytes.add(files * 100);
                    })
                })
            }
            Healthy::Scans => {
                let seconds = self.between(60, 900);
                self.seconds(seconds, |this, _| {
                    this.bytes.grow_total(MIB);
                })
            }
            Healthy::Hiccups => {
                let silence = self.between(20, 27);
                self.seconds(30, |this, _| this.move_bytes()).or_else(|| self.seconds(silence, |_, _| {}))
            }
            Healthy::Retries => self.retry(),
            Healthy::SlowPacks => self.send_slow_packs(),
            Healthy::CoarseCounter => self.count_coarsely(),
            quiet => self.be_quiet(quiet),
        }
        .or_else(|| self.seconds(5, |this, _| this.move_bytes()))
    }

    fn move_bytes(&mut self) {
        let noisy = self.dice.around(1.0, 0.4);
        self.bytes.add(super::transfer::whole(Duration::from_secs(self.speed).as_secs_f64() * noisy));
        self.files.add(1);
    }

    fn retry(&mut self) -> Option<StallReason> {
        let mut left = self.between(20, 170);
        while left > 0 {
            let pause = self.between(1, 20).min(left);
            left -= pause;
            let waiting = self.task.wait("trying again: connection refused");
            if let Some(reason) = self.seconds(pause, |_, _| {}) {
                return Some(reason);
            }
            drop(waiting);
        }
        None
    }

    fn send_slow_packs(&mut self) -> Option<StallReason> {
        let (packs, seconds) = (self.between(1, 2), self.between(200, 1200));
        self.move_bytes();
        (0..packs).find_map(|_| {
            let stalled = self.seconds(seconds, |this, _| this.task.moved(16 * MIB / seconds));
            self.bytes.add(16 * MIB);
            stalled
        })
    }

    /// A line of its output stands until a tenth of its number is done.
    fn count_coarsely(&mut self) -> Option<StallReason> {
        let seconds = self.between(200, 1000);
        // From 1.1 to 1.2 TB.
        let step = 100 << 30;
        self.speed = step / seconds;
        self.bytes.add(11 * step);
        (0..2).find_map(|_| {
            let stalled = self.seconds(seconds, |this, _| this.task.process_moved(this.speed));
            self.bytes.add(step);
            stalled
        })
    }

    fn be_quiet(&mut self, phase: Healthy) -> Option<StallReason> {
        let (seconds, task) = (self.between(20, 1500), self.task.clone());
        let limit = Some(Duration::from_secs(seconds + 1));
        let waiting = match phase {
            Healthy::Hook => Some(task.wait_quietly("pre-hook freeze to end", limit)),
            Healthy::CsiSnapshot => Some(task.wait_quietly("waiting for the driver to take the snapshot", limit)),
            Healthy::Flush => Some(task.wait_quietly("flushing the volume", None)),
            Healthy::Completion => Some(task.wait_quietly("waiting for the store to complete the object", None)),
            Healthy::Queue => Some(task.wait_in_queue("queued behind other transfers")),
            _ => None,
        };
        if waiting.is_none() {
            task.quiet();
        }
        let stalled = self.seconds(seconds, |_, _| {});
        task.loud();
        stalled
    }

    fn fail(&mut self, fault: Fault, second: u64, pause: u64, wait: &mut Option<Wait>) {
        let turn = second.is_multiple_of(pause);
        match fault {
            Fault::DeadLock | Fault::Retries if turn => {
                *wait = None;
                let text = if fault == Fault::DeadLock { "waiting for the lock of node-7" } else { "trying again" };
                *wait = Some(self.task.wait(text));
            }
            Fault::Resends => {
                if turn {
                    *wait = None;
                    *wait = Some(self.task.wait("connection lost; retrying"));
                }
                self.task.retried();
            }
            Fault::ProgramLoops => self.task.process_moved(4 * MIB),
            Fault::Trickle => self.bytes.add(1),
            _ => {}
        }
    }
}
