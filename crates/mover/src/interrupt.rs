//! Signals that stop a program.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The time that a program has to clean up after SIGINT. In all, a cancel stays well below its five seconds.
const INTERRUPT_GRACE_PERIOD: Duration = Duration::from_secs(3);

/// The interruption of a program: first SIGINT, so that it removes its locks, then SIGKILL.
#[derive(Debug, Default)]
pub(crate) struct Interrupt(Option<Instant>);

impl Interrupt {
    /// Sends SIGINT, and SIGKILL after the grace period.
    pub(crate) fn signal(&mut self, child: &Child) {
        match self.0 {
            None => {
                let _ = kill_process(Pid::from_child(child), Signal::INT);
                self.0 = Some(Instant::now());
            }
            Some(since) if since.elapsed() > INTERRUPT_GRACE_PERIOD => {
                let _ = kill_process(Pid::from_child(child), Signal::KILL);
            }
            Some(_) => {}
        }
    }
}
