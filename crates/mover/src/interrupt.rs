//! Signals to processes of ours.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take to clean up after it was asked to stop. With what comes before and after it is well below
/// the five seconds that a cancel may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// A program that is being asked to stop: politely first, so that it removes its locks.
#[derive(Debug, Default)]
pub(crate) struct Stopping(Option<Instant>);

impl Stopping {
    /// Asks, and insists once the program has had its time.
    pub(crate) fn press(&mut self, child: &Child) {
        match self.0 {
            None => {
                let _ = kill_process(Pid::from_child(child), Signal::INT);
                self.0 = Some(Instant::now());
            }
            Some(since) if since.elapsed() > PATIENCE => {
                let _ = kill_process(Pid::from_child(child), Signal::KILL);
            }
            Some(_) => {}
        }
    }
}
