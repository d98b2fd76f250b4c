//! A test binary as a process.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::suite::Suite;

/// Its tests wait for servers, agents and pods for a fifth of their time: one more than the machine has cores keeps the cores busy.
const WAITING_SUITE: &str = "cli it";

/// The unit of times in `/proc`, on every architecture that we build for.
const TICKS_PER_SECOND: u64 = 100;

/// How the process of a suite ended.
pub struct Ended {
    pub status: ExitStatus,
    /// Of the process and of all processes that it waited for.
    pub processor_time: Duration,
}

/// Runs a test binary to its end, with its output in a file.
pub fn run_to_end(suite: &Suite, arguments: &[String], log: &Path) -> Result<Ended> {
    let output = File::create(log)?;
    let mut command = Command::new(&suite.executable);
    command.args(["-Z", "unstable-options", "--report-time"]).args(arguments).args(thread_arguments(suite, arguments));
    command.current_dir(&suite.directory).env("RUSTC_BOOTSTRAP", "1").env("CARGO_MANIFEST_DIR", &suite.directory);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let child = command.spawn().with_context(|| format!("failed to start {}", suite.executable.display()))?;
    wait(child)
}

/// More threads for the suite that waits, unless a number is given.
fn thread_arguments(suite: &Suite, given: &[String]) -> Vec<String> {
    if suite.name != WAITING_SUITE || given.iter().any(|argument| argument.starts_with("--test-threads")) {
        return Vec::new();
    }
    let cores = thread::available_parallelism().map_or(2, std::num::NonZero::get);
    vec![format!("--test-threads={}", cores + 1)]
}

fn wait(mut child: Child) -> Result<Ended> {
    // The kernel keeps the times of an ended process until its parent has waited for it.
    let _ = waitid(WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    Ok(Ended { status: child.wait()?, processor_time: processor_time(&stat) })
}

/// The user and system time of a process and its children in the text of `/proc/<pid>/stat`.
fn processor_time(stat: &str) -> Duration {
    // The name of the program stands in parentheses and may contain anything; twelve fields later the times begin.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks: u64 = fields.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::processor_time;

    #[test]
    fn the_processor_time_includes_the_children() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 9 9 0 0 100 50 30 20 20 0 1 0 99 0 0";
        assert_eq!(processor_time(stat), Duration::from_secs(2));
        assert_eq!(processor_time(""), Duration::ZERO);
    }
}
