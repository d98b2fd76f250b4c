//! Other processes: their children, their state, and signals.

use std::fs;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait::{WAIT_TIMEOUT, until_blocking};

/// A process on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Process {
    id: i32,
    /// Ticks since boot at which it started; with the id this is never reused.
    started: u64,
}

impl Process {
    /// The process with this id, if it exists.
    pub fn find(id: u32) -> Option<Self> {
        let id = i32::try_from(id).ok()?;
        Stat::read(id).map(|stat| Self { id, started: stat.started })
    }

    /// Its id.
    pub fn id(self) -> i32 {
        self.id
    }

    /// Whether it still runs. A zombie does not.
    pub fn is_alive(self) -> bool {
        Stat::read(self.id).is_some_and(|stat| stat.started == self.started && !matches!(stat.state, 'Z' | 'X'))
    }

    /// Whether it was stopped by a signal.
    pub fn is_stopped(self) -> bool {
        Stat::read(self.id).is_some_and(|stat| stat.state == 'T')
    }

    /// Sends a signal.
    pub fn signal(self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.id).context("a process cannot have the number 0")?;
        kill_process(pid, signal).with_context(|| format!("failed to send {signal:?} to process {}", self.id))
    }

    /// Kills it and waits until it has exited.
    pub fn kill(self) -> Result<()> {
        if self.is_alive() {
            self.signal(Signal::KILL)?;
        }
        let has_exited = || (!self.is_alive()).then_some(());
        until_blocking(format!("the end of process {}", self.id), WAIT_TIMEOUT, has_exited)
    }

    /// Its direct children.
    pub fn children(self) -> Vec<Self> {
        all().into_iter().filter(|(_, stat)| stat.parent == self.id).map(|(process, _)| process).collect()
    }
}

/// Every process whose command line contains `needle`.
pub fn find_by_command_line(needle: &str) -> Vec<Process> {
    let mentions = |process: &Process| {
        let line = fs::read(format!("/proc/{}/cmdline", process.id)).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(needle)
    };
    all().into_iter().map(|(process, _)| process).filter(mentions).collect()
}

fn all() -> Vec<(Process, Stat)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|id| Stat::read(id).map(|stat| (Process { id, started: stat.started }, stat)))
        .collect()
}

struct Stat {
    state: char,
    parent: i32,
    started: u64,
}

impl Stat {
    fn read(id: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The second field is a name in parentheses that may contain anything, so count from behind it.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let state = fields.first()?.chars().next()?;
        Some(Self { state, parent: fields.get(1)?.parse().ok()?, started: fields.get(19)?.parse().ok()? })
    }
}
