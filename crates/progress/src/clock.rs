//! Where time comes from: the system, or a test's hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A monotonic clock, counted from its own start, and the wall clock beside it.
///
/// Everything in a tree is measured on the monotonic side; the wall clock only serves projections that must write a
/// date. What crosses a process boundary is always an age.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System(Instant),
    Virtual(VirtualClock),
}

impl Clock {
    /// The machine's own clock.
    pub fn system() -> Self {
        Self(Source::System(Instant::now()))
    }

    /// Time since this clock began. Never goes back.
    pub fn now(&self) -> Duration {
        match &self.0 {
            Source::System(origin) => origin.elapsed(),
            Source::Virtual(clock) => clock.now(),
        }
    }

    /// The date, for projections that must write one. On a virtual clock it starts at the Unix epoch.
    pub fn wall(&self) -> SystemTime {
        match &self.0 {
            Source::System(_) => SystemTime::now(),
            Source::Virtual(clock) => SystemTime::UNIX_EPOCH + clock.now(),
        }
    }

    /// The date of something that is `age` old.
    pub fn wall_before(&self, age: Duration) -> SystemTime {
        let now = self.wall();
        now.checked_sub(age).unwrap_or(now)
    }
}

/// A clock that moves only when it is told to.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock {
    nanos: Arc<AtomicU64>,
}

impl VirtualClock {
    /// A clock that stands at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// The clock to give to an operation; it follows this one.
    pub fn clock(&self) -> Clock {
        Clock(Source::Virtual(self.clone()))
    }

    /// Moves time forward.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Time since this clock began.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

impl From<&VirtualClock> for Clock {
    fn from(clock: &VirtualClock) -> Self {
        clock.clock()
    }
}
