//! Child processes that never outlive the test process, however that ends.
//!
//! ```text
//! test process ──┬── program        (its own process group)
//!                └── watchdog (bash)  waits for the end of a pipe that only the test process holds open
//! ```
//! When the pipe ends without input, the test process is dead: the watchdog kills the group and removes the files. A
//! parent-death signal is not enough: it fires when the *thread* that started the child ends, and does not reach
//! grandchildren.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};

const WATCHDOG_SCRIPT: &str = r#"trap '' INT TERM HUP; read -r word && exit; kill -KILL -- "-$1"; rm -rf -- "$2""#;

/// A running program with its own directory. Dropping this kills the program and removes the directory.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    directory: PathBuf,
    watchdog: Child,
    pipe: ChildStdin,
}

impl ChildProcess {
    /// Starts the program. `directory` becomes its working directory, holds its `log`, and is removed at the end.
    pub fn start(mut command: Command, directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(&directory)?;
        let log = File::create(directory.join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(&directory).process_group(0);
        let child = command.spawn().with_context(|| format!("failed to start {}", command.get_program().display()))?;
        let (watchdog, pipe) = start_watchdog(&child, &directory)?;
        Ok(Self { child, directory, watchdog, pipe })
    }

    /// The process that was started.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether it has exited.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Sends a signal to the program and everything it started.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process_group(Pid::from_child(&self.child), signal).context("failed to signal the process group")
    }
}

fn start_watchdog(child: &Child, directory: &Path) -> Result<(Child, ChildStdin)> {
    let mut watch = Command::new("bash");
    watch.args(["-c", WATCHDOG_SCRIPT, "watchdog"]).arg(child.id().to_string()).arg(directory);
    watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut watchdog = watch.spawn().context("failed to start the watchdog with bash")?;
    let pipe = watchdog.stdin.take().context("the watchdog has no standard input")?;
    Ok((watchdog, pipe))
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.signal(Signal::KILL);
        // Before the child is waited for: afterwards its process id may be reused.
        let _ = self.pipe.write_all(b"done\n");
        let _ = self.watchdog.wait();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
