//! Processes, mounts, network and host name in namespaces that end together.
//!
//! ```text
//! test process ══pipe══╗   reaper (bash)      waits, then removes control groups and files
//!                      ╚══  └─ unshare
//!                               └─ init (bash)  process 1 of its own namespace: ends when the pipe ends
//!                                   ├─ containerd ─ shims ─ containers, their overlay mounts
//!                                   └─ kubelet, API server, …   entered from outside with nsenter
//! ```
//! Killing a containerd leaves its shims and mounts behind, and no destructor runs in a test process that was killed. So the
//! kernel does the work: the end of a namespace's first process ends all others in it, and mounts and interfaces are removed
//! with the last of them. Nothing was ever mounted outside, so removing the directory afterwards cannot reach into a volume.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::process::Process;
use crate::wait::{WAIT_TIMEOUT, until_blocking};

const REAPER: &str = include_str!("enclosure/reaper.sh");
const INIT: &str = include_str!("enclosure/init.sh");
const NETWORK: &str = include_str!("enclosure/network.sh");
const MAX_SLOTS: u8 = 32;

/// How long an enclosure lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until it is dropped or this process ends for any reason.
    Bound,
    /// Until [`Enclosure::end`] is called.
    Free,
}

/// Namespaces with a first process, a directory and an address range of their own.
#[derive(Debug)]
pub struct Enclosure {
    slot: u8,
    init: Process,
    // Kept until the end: closing the pipe is the signal, the child is waited for.
    reaper: Option<(Child, Option<ChildStdin>)>,
}

impl Enclosure {
    /// Starts an enclosure. Its directory contains only what `prepare` writes there.
    pub fn start(lifetime: Lifetime, prepare: impl FnOnce(Addresses, &Path) -> Result<()>) -> Result<Self> {
        let (slot, lock) = claim_slot()?;
        prepare(Addresses::of(slot), &directory_of(slot))?;
        let mut reaper = spawn_reaper(slot, lock, lifetime)?;
        let pipe = reaper.stdin.take();
        let init = find_init(slot, &mut reaper)?;
        let enclosure = Self { slot, init, reaper: (lifetime == Lifetime::Bound).then_some((reaper, pipe)) };
        enclosure.connect()?;
        Ok(enclosure)
    }

    /// An enclosure of another process, if it runs.
    pub fn attach(slot: u8, init: Process) -> Option<Self> {
        init.is_alive().then_some(Self { slot, init, reaper: None })
    }

    /// Its number, unique among running enclosures.
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Its first process.
    pub fn init(&self) -> Process {
        self.init
    }

    /// Its directory, at the same path inside and outside.
    pub fn directory(&self) -> PathBuf {
        directory_of(self.slot)
    }

    /// Its addresses.
    pub fn addresses(&self) -> Addresses {
        Addresses::of(self.slot)
    }

    /// A command that runs inside. The started process is the only child of the spawned one.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.init.id().to_string());
        command.args(["--mount", "--net", "--pid", "--uts", "--ipc", "--"]).arg(program.as_ref());
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").process_group(0);
        command
    }

    /// Ends everything inside and waits until nothing of it is left.
    pub fn end(&mut self) -> Result<()> {
        self.init.kill()?;
        if let Some((mut reaper, pipe)) = self.reaper.take() {
            drop(pipe);
            reaper.wait()?;
        }
        let lock = lock_file(self.slot)?;
        until_blocking("the last run to be cleaned up", WAIT_TIMEOUT, || lock.try_lock().ok())
    }

    fn connect(&self) -> Result<()> {
        let addresses = self.addresses();
        let mut script = Command::new("bash");
        script.args(["-c", NETWORK, "network"]).arg(self.slot.to_string()).arg(self.init.id().to_string());
        script.args([addresses.host(), addresses.node(), addresses.pods()]);
        run(&mut script)
    }
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        if self.reaper.is_some() {
            let _ = self.end();
        }
    }
}

/// Runs a command to its end; its output is part of the error.
pub fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("failed to start {}", command.get_program().display()))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// The address ranges of one enclosure.
#[derive(Debug, Clone, Copy)]
pub struct Addresses(u8);

impl Addresses {
    /// Those of the enclosure with this number.
    pub fn of(slot: u8) -> Self {
        Self(slot)
    }

    /// The number of the enclosure.
    pub fn slot(self) -> u8 {
        self.0
    }

    /// The machine, as the enclosure sees it: what pods connect to when a test runs a server.
    pub fn host(self) -> String {
        format!("10.213.{}.1", self.0)
    }

    /// The enclosure, as the machine sees it.
    pub fn node(self) -> String {
        format!("10.213.{}.2", self.0)
    }

    /// The range of pod addresses; the machine has a route to it.
    pub fn pods(self) -> String {
        format!("10.244.{}.0/24", self.0)
    }

    /// The range of service addresses.
    pub fn services(self) -> String {
        format!("10.96.{}.0/24", self.0)
    }

    /// The API server's service address.
    pub fn kubernetes_service(self) -> String {
        format!("10.96.{}.1", self.0)
    }
}

fn runs_directory() -> PathBuf {
    crate::cache::directory().join("run")
}

fn directory_of(slot: u8) -> PathBuf {
    runs_directory().join(slot.to_string())
}

fn lock_file(slot: u8) -> Result<File> {
    fs::create_dir_all(runs_directory())?;
    let path = runs_directory().join(format!("{slot}.lock"));
    File::options().create(true).append(true).open(&path).with_context(|| format!("failed to open {}", path.display()))
}

/// Claims an unused number and empties its directory.
fn claim_slot() -> Result<(u8, File)> {
    for slot in 0..MAX_SLOTS {
        let lock = lock_file(slot)?;
        if lock.try_lock().is_ok() {
            let directory = directory_of(slot);
            // The reaper removes it, unless it was killed too.
            if directory.exists() {
                fs::remove_dir_all(&directory)?;
            }
            fs::create_dir_all(&directory)?;
            return Ok((slot, lock));
        }
    }
    bail!("all {MAX_SLOTS} slots are in use by runs that have not ended")
}

/// The output of the reaper goes to the lock file, which keeps it locked while the reaper runs.
fn spawn_reaper(slot: u8, lock: File, lifetime: Lifetime) -> Result<Child> {
    let mut reaper = Command::new("bash");
    reaper.args(["-c", REAPER, "reaper"]).arg(directory_of(slot)).arg(slot.to_string()).arg(INIT);
    reaper.arg(if lifetime == Lifetime::Bound { "bound" } else { "free" });
    reaper.stdin(if lifetime == Lifetime::Bound { Stdio::piped() } else { Stdio::null() });
    reaper.stderr(lock.try_clone()?).stdout(lock).process_group(0);
    reaper.spawn().context("failed to start bash")
}

fn find_init(slot: u8, reaper: &mut Child) -> Result<Process> {
    let up = directory_of(slot).join("up");
    let probe = || (up.exists() || reaper.try_wait().is_ok_and(|ended| ended.is_some())).then_some(());
    until_blocking("the namespaces", WAIT_TIMEOUT, probe)?;
    let only_child = |process: Process| process.children().into_iter().next();
    Process::find(reaper.id()).and_then(only_child).and_then(only_child).with_context(|| {
        format!("cannot create the namespaces; see {}", runs_directory().join(format!("{slot}.lock")).display())
    })
}
