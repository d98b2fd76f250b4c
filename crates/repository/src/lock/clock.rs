//! The clock of locks. It advances while the machine is suspended, like the clocks of other processes.

use std::time::Duration;

use plimsoll_progress::Clock;
use rustix::time::{ClockId, clock_gettime};

/// The time since boot, or a test clock.
#[derive(Clone, Debug)]
pub(super) struct LockClock(Option<Clock>);

impl LockClock {
    /// Uses the system clock unless another one is given.
    pub(super) fn new(given: Option<Clock>) -> Self {
        Self(given)
    }

    pub(super) fn now(&self) -> Duration {
        match &self.0 {
            Some(clock) => clock.now(),
            None => Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_the_time_since_boot() {
        let uptime = std::fs::read_to_string("/proc/uptime").expect("reads");
        let seconds: f64 = uptime.split(' ').next().expect("a field").parse().expect("a number");
        let clock = LockClock::new(None);
        assert!((clock.now().as_secs_f64() - seconds).abs() < 60.0);
        assert!(clock.now() <= clock.now());
    }
}
