//! One process of a plugin, from its start to its end.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::handshake::{self, LONGEST_LINE};
use crate::launch::Launch;
use crate::logs::{Gravity, LastWords, LogLine, LogSink, drain, follow};
use crate::text::bounded;
use crate::{Error, Result};

/// How long the rest of a dead process's standard error is read for.
const LAST_LINES: Duration = Duration::from_secs(1);
/// How long a process whose standard output has ended is given to end as well.
const ENDING: Duration = Duration::from_secs(5);

/// A running process. Dropping it kills it, with everything it started.
pub(crate) struct Process {
    plugin: String,
    group: Option<Pid>,
    ended: watch::Receiver<Option<String>>,
    last: LastWords,
    /// Holds its socket; removed with it.
    _sockets: TempDir,
}

impl Process {
    /// Starts a binary and waits for its handshake. Returns the process and its socket.
    pub(crate) async fn start(
        plugin: &str,
        binary: &Path,
        launch: &Launch,
        logs: &Arc<dyn LogSink>,
    ) -> Result<(Self, PathBuf)> {
        let failed = |error: std::io::Error| Error::NotStarted { plugin: plugin.to_owned(), cause: error.to_string() };
        // Whoever can reach the socket can give the plugin orders: nobody but this user.
        let sockets = tempfile::Builder::new()
            .prefix(crate::sweep::SOCKETS)
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir()
            .map_err(failed)?;
        let mut command = launch.command(binary, sockets.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = spawn(command).await.map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let last = LastWords::default();
        let read = stderr.map(|stderr| tokio::spawn(follow(plugin.to_owned(), stderr, Arc::clone(logs), last.clone())));
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let process = Self { plugin: plugin.to_owned(), group, ended: watch_end(child, read), last, _sockets: sockets };
        let Some(stdout) = stdout else { return Err(failed(std::io::Error::other("it has no standard output"))) };
        let greeting = process.greeting(stdout, logs);
        let limit = launch.supervision.handshake;
        let timed_out = || Error::HandshakeTimedOut { plugin: plugin.to_owned(), limit };
        let line = tokio::time::timeout(limit, greeting).await.map_err(|_| timed_out())??;
        let socket = handshake::parse(plugin, &line)?;
        Ok((process, socket))
    }

    /// The first line of its standard output; the rest is read away from then on, so that it never blocks.
    async fn greeting(&self, stdout: ChildStdout, logs: &Arc<dyn LogSink>) -> Result<Vec<u8>> {
        let mut stdout = BufReader::new(stdout);
        let mut line = Vec::new();
        let read = (&mut stdout).take(LONGEST_LINE as u64).read_until(b'\n', &mut line).await;
        if line.is_empty() || read.is_err() {
            return Err(self.silent_end().await);
        }
        let (plugin, logs) = (self.plugin.clone(), Arc::clone(logs));
        tokio::spawn(async move {
            let mut noise = Noise { plugin, logs, told: false };
            drain(stdout, |line| noise.line(line)).await;
        });
        Ok(line)
    }

    /// It closed its standard output without a word.
    async fn silent_end(&self) -> Error {
        match tokio::time::timeout(ENDING, self.end()).await {
            Ok(error) => error,
            Err(_) => Error::HandshakeInvalid { plugin: self.plugin.clone(), line: String::new() },
        }
    }

    /// Waits until it has ended and says how.
    pub(crate) async fn end(&self) -> Error {
        let mut ended = self.ended.clone();
        let how = ended.wait_for(Option::is_some).await.ok().and_then(|how| how.clone());
        Error::Exited {
            plugin: self.plugin.clone(),
            how: how.unwrap_or_else(|| "nobody knows how".to_owned()),
            said: self.last.text(),
        }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Kills it, with everything it started.
    pub(crate) fn kill(&self) {
        self.killer().kill();
    }

    /// Its process id, which is also that of its group.
    pub(crate) fn id(&self) -> Option<i32> {
        self.group.map(Pid::as_raw_pid)
    }

    /// A way to kill it from elsewhere.
    pub(crate) fn killer(&self) -> Killer {
        Killer { group: self.group, ended: self.ended.clone() }
    }
}

/// Kills a process that has not ended.
pub(crate) struct Killer {
    group: Option<Pid>,
    ended: watch::Receiver<Option<String>>,
}

impl Killer {
    pub(crate) fn kill(&self) {
        if let Some(group) = self.group.filter(|_| self.ended.borrow().is_none()) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a plugin writes to its standard output after its handshake: harmless, and a mistake of its author.
struct Noise {
    plugin: String,
    logs: Arc<dyn LogSink>,
    told: bool,
}

impl Noise {
    fn line(&mut self, line: &[u8]) {
        let gravity = if self.told { Gravity::Debug } else { Gravity::Info };
        self.told = true;
        let message = format!("wrote to standard output: {:?}", bounded(&String::from_utf8_lossy(line), 200));
        self.logs.line(&LogLine { plugin: self.plugin.clone(), gravity, message, fields: Vec::new() });
    }
}

/// Waits for the end in the background: a process nobody waits for would stay a zombie.
fn watch_end(mut child: Child, stderr: Option<JoinHandle<()>>) -> watch::Receiver<Option<String>> {
    let (to, ended) = watch::channel(None);
    tokio::spawn(async move {
        let how = child.wait().await.map_or_else(|error| error.to_string(), describe);
        if let Some(stderr) = stderr {
            let _ = tokio::time::timeout(LAST_LINES, stderr).await;
        }
        let _ = to.send(Some(how));
    });
    ended
}

fn describe(status: ExitStatus) -> String {
    status.to_string()
}

type Spawning = (Command, tokio::runtime::Handle, oneshot::Sender<std::io::Result<Child>>);

/// Starts a process from a thread that never ends: a death signal is bound to the thread that started a process.
async fn spawn(command: Command) -> std::io::Result<Child> {
    static LAUNCHER: LazyLock<Mutex<Sender<Spawning>>> = LazyLock::new(|| {
        let (to, from) = channel::<Spawning>();
        std::thread::spawn(move || {
            for (mut command, runtime, answer) in from {
                let _runtime = runtime.enter();
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(to)
    });
    let gone = || std::io::Error::other("the launcher is gone");
    let (answer, started) = oneshot::channel();
    let asked = LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner).send((
        command,
        tokio::runtime::Handle::current(),
        answer,
    ));
    asked.map_err(|_| gone())?;
    started.await.map_err(|_| gone())?
}
