//! One process of a plugin, from start to exit.

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

use crate::handshake::{self, MAX_HANDSHAKE_LENGTH};
use crate::launch_config::LaunchConfig;
use crate::log_sink::{LogLevel, LogLine, LogSink, StderrTail, forward_stderr, read_lines};
use crate::sanitize::sanitize_to;
use crate::{Error, Result};

/// How long standard error is read after the process exited.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for the exit of a process that closed its standard output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A running process. Dropping it kills the process group.
pub(crate) struct Process {
    plugin: String,
    group: Option<Pid>,
    exited: watch::Receiver<Option<String>>,
    stderr_tail: StderrTail,
    /// The directory of its socket; removed on drop.
    _socket_directory: TempDir,
}

impl Process {
    /// Starts a binary and waits for its handshake. Returns the process and the path of its socket.
    pub(crate) async fn start(
        plugin: &str,
        binary: &Path,
        launch_config: &LaunchConfig,
        logs: &Arc<dyn LogSink>,
    ) -> Result<(Self, PathBuf)> {
        let failed = |error: std::io::Error| Error::StartFailed { plugin: plugin.to_owned(), cause: error.to_string() };
        // Access to the socket means control of the plugin: only this user has it.
        let socket_directory = tempfile::Builder::new()
            .prefix(crate::stale_files::SOCKET_DIRECTORY_PREFIX)
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir()
            .map_err(failed)?;
        let mut command = launch_config.command(binary, socket_directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = spawn(command).await.map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let stderr_tail = StderrTail::default();
        let read = stderr.map(|stderr| {
            tokio::spawn(forward_stderr(plugin.to_owned(), stderr, Arc::clone(logs), stderr_tail.clone()))
        });
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let process = Self {
            plugin: plugin.to_owned(),
            group,
            exited: watch_exit(child, read),
            stderr_tail,
            _socket_directory: socket_directory,
        };
        let Some(stdout) = stdout else { return Err(failed(std::io::Error::other("no standard output"))) };
        let read_handshake = process.read_handshake(stdout, logs);
        let limit = launch_config.supervision.handshake_timeout;
        let timed_out = || Error::HandshakeTimedOut { plugin: plugin.to_owned(), limit };
        let line = tokio::time::timeout(limit, read_handshake).await.map_err(|_| timed_out())??;
        let socket = handshake::parse(plugin, &line)?;
        Ok((process, socket))
    }

    /// Reads the first line of standard output. The rest is read in the background, so that the process never blocks on a write.
    async fn read_handshake(&self, stdout: ChildStdout, logs: &Arc<dyn LogSink>) -> Result<Vec<u8>> {
        let mut stdout = BufReader::new(stdout);
        let mut line = Vec::new();
        let read = (&mut stdout).take(MAX_HANDSHAKE_LENGTH as u64).read_until(b'\n', &mut line).await;
        if line.is_empty() || read.is_err() {
            return Err(self.exit_before_handshake().await);
        }
        let (plugin, logs) = (self.plugin.clone(), Arc::clone(logs));
        tokio::spawn(async move {
            let mut noise = StrayOutput { plugin, logs, reported: false };
            read_lines(stdout, |line| noise.line(line)).await;
        });
        Ok(line)
    }

    /// The error of a process that closed its standard output without a handshake.
    async fn exit_before_handshake(&self) -> Error {
        match tokio::time::timeout(EXIT_TIMEOUT, self.wait_for_exit()).await {
            Ok(error) => error,
            Err(_) => Error::HandshakeInvalid { plugin: self.plugin.clone(), line: String::new() },
        }
    }

    /// Waits for the exit of the process and returns its error.
    pub(crate) async fn wait_for_exit(&self) -> Error {
        let mut exited = self.exited.clone();
        let status = exited.wait_for(Option::is_some).await.ok().and_then(|status| status.clone());
        Error::Exited {
            plugin: self.plugin.clone(),
            how: status.unwrap_or_else(|| "unknown exit status".to_owned()),
            stderr: self.stderr_tail.text(),
        }
    }

    /// Whether the process has exited.
    pub(crate) fn has_exited(&self) -> bool {
        self.exited.borrow().is_some()
    }

    /// Kills the process group.
    pub(crate) fn kill(&self) {
        self.killer().kill();
    }

    /// The process id, which is also the id of the process group.
    pub(crate) fn id(&self) -> Option<i32> {
        self.group.map(Pid::as_raw_pid)
    }

    /// A handle that kills the process.
    pub(crate) fn killer(&self) -> Killer {
        Killer { group: self.group, exited: self.exited.clone() }
    }
}

/// Kills the process group unless the process has exited.
pub(crate) struct Killer {
    group: Option<Pid>,
    exited: watch::Receiver<Option<String>>,
}

impl Killer {
    pub(crate) fn kill(&self) {
        if let Some(group) = self.group.filter(|_| self.exited.borrow().is_none()) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Logs what a plugin writes to standard output after its handshake.
struct StrayOutput {
    plugin: String,
    logs: Arc<dyn LogSink>,
    reported: bool,
}

impl StrayOutput {
    fn line(&mut self, line: &[u8]) {
        let level = if self.reported { LogLevel::Debug } else { LogLevel::Info };
        self.reported = true;
        let message = format!("unexpected output on stdout: {:?}", sanitize_to(&String::from_utf8_lossy(line), 200));
        self.logs.line(&LogLine { plugin: self.plugin.clone(), level, message, fields: Vec::new() });
    }
}

/// Waits for the exit in the background, so that the process does not become a zombie.
fn watch_exit(mut child: Child, stderr: Option<JoinHandle<()>>) -> watch::Receiver<Option<String>> {
    let (to, exited) = watch::channel(None);
    tokio::spawn(async move {
        let status = child.wait().await.map_or_else(|error| error.to_string(), describe);
        if let Some(stderr) = stderr {
            let _ = tokio::time::timeout(STDERR_DRAIN_TIMEOUT, stderr).await;
        }
        let _ = to.send(Some(status));
    });
    exited
}

fn describe(status: ExitStatus) -> String {
    status.to_string()
}

type SpawnRequest = (Command, tokio::runtime::Handle, oneshot::Sender<std::io::Result<Child>>);

/// Starts a process from a thread that never exits: a parent death signal is bound to the thread that started the process.
async fn spawn(command: Command) -> std::io::Result<Child> {
    static LAUNCHER: LazyLock<Mutex<Sender<SpawnRequest>>> = LazyLock::new(|| {
        let (to, from) = channel::<SpawnRequest>();
        std::thread::spawn(move || {
            for (mut command, runtime, answer) in from {
                let _runtime = runtime.enter();
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(to)
    });
    let launcher_stopped = || std::io::Error::other("the launcher thread has stopped");
    let (answer, started) = oneshot::channel();
    let sent = LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner).send((
        command,
        tokio::runtime::Handle::current(),
        answer,
    ));
    sent.map_err(|_| launcher_stopped())?;
    started.await.map_err(|_| launcher_stopped())?
}
