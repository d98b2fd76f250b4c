//! Child processes that never outlive the test process, however that ends.
//!
//! ```text
//! test process ──┬── program        (its own process group)
//!                └── keeper (bash)  waits for the end of a pipe that only the test process holds open
//! ```
//! When the pipe ends without a word, the test process is dead: the keeper kills the group and removes the files. A parent-death
//! signal would not do: it fires when the *thread* that started the child ends, and does not reach grandchildren.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};

const WATCH: &str = r#"trap '' INT TERM HUP; read -r word && exit; kill -KILL -- "-$1"; rm -rf -- "$2""#;

/// A running program with a directory of its own, both gone when this is dropped.
#[derive(Debug)]
pub struct Kept {
    child: Child,
    directory: PathBuf,
    keeper: Child,
    pipe: ChildStdin,
}

impl Kept {
    /// Starts the program. `directory` becomes its working directory, holds its `log`, and is removed at the end.
    pub fn start(mut command: Command, directory: PathBuf) -> Result<Self> {
        fs::create_dir_all(&directory)?;
        let log = File::create(directory.join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(&directory).process_group(0);
        let child = command.spawn().with_context(|| format!("failed to start {}", command.get_program().display()))?;
        let (keeper, pipe) = keep(&child, &directory)?;
        Ok(Self { child, directory, keeper, pipe })
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

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Sends a signal to the program and everything it started.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process_group(Pid::from_child(&self.child), signal).context("failed to signal the process group")
    }
}

fn keep(child: &Child, directory: &Path) -> Result<(Child, ChildStdin)> {
    let mut watch = Command::new("bash");
    watch.args(["-c", WATCH, "keeper"]).arg(child.id().to_string()).arg(directory);
    watch.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut keeper = watch.spawn().context("failed to start bash, which keeps child processes from surviving")?;
    let pipe = keeper.stdin.take().context("the keeper has no standard input")?;
    Ok((keeper, pipe))
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.signal(Signal::KILL);
        // Before the child is waited for: afterwards its number may belong to somebody else.
        let _ = self.pipe.write_all(b"done\n");
        let _ = self.keeper.wait();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
