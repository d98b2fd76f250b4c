//! The parent's side: starts a mover process, shows its task tree, and waits for its result.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_progress::{Graft, Task};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use crate::job::Job;
use crate::outcome::Outcome;
use crate::program::describe_status;
use crate::protocol::{CANCEL, MoverMessage, is_result, parse_message};
use crate::{MoverError, Result, private_directory, process_state};

/// The time limit for reading the rest of a dead process's log.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// A cancelled process is killed after this. Callers rely on five seconds in all.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(4500);
/// The time that a process has to exit after it wrote its result.
const EXIT_GRACE_PERIOD: Duration = Duration::from_secs(1);
/// The time limits for reaping a killed process, and a killed process after a cancel. A process that flushes a slow disk exits
/// when the disk responds; it does no more work and is reaped later.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const KILL_TIMEOUT_AFTER_CANCEL: Duration = Duration::from_millis(400);
/// A mover sends a frame every second. Without one for this long, the state of its process is checked.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum length of a frame.
const MAX_FRAME_LENGTH: usize = 32 << 20;
/// The maximum length of a result. A list of fifty thousand snapshots exceeds the limit of a frame; this has room for eight
/// times as many and still limits the memory of the parent.
const MAX_RESULT_LENGTH: usize = 256 << 20;

/// The command that runs a mover.
#[derive(Clone, Debug)]
pub struct MoverCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl MoverCommand {
    /// The current program with the `mover` command.
    pub fn this_program() -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| MoverError::local("find the current program", &error))?;
        Ok(Self { program, arguments: vec!["mover".into()] })
    }
}

/// A running mover process. Dropping it kills the process and all its descendants.
#[derive(Debug)]
pub struct MoverProcess {
    group: ProcessGroup,
    child: Child,
    stdout: BufReader<ChildStdout>,
    last_log_line: watch::Receiver<String>,
    graft: GraftGuard,
    canceller: Canceller,
    _stdin_guard: oneshot::Sender<()>,
}

/// Cancels a transfer from another task.
#[derive(Clone, Debug, Default)]
pub struct Canceller(Arc<CancelRequest>);

#[derive(Debug, Default)]
struct CancelRequest {
    at: OnceLock<Instant>,
    notify: Notify,
}

impl Canceller {
    /// Cancels the transfer. It ends within five seconds.
    pub fn cancel(&self) {
        self.0.at.get_or_init(Instant::now);
        self.0.notify.notify_waiters();
    }

    /// Whether the transfer was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.at.get().is_some()
    }

    async fn cancelled(&self) {
        let mut notified = std::pin::pin!(self.0.notify.notified());
        // Registered before the flag is read, or a cancel in between would be lost.
        notified.as_mut().enable();
        if !self.is_cancelled() {
            notified.await;
        }
    }

    /// Completes when a cancelled transfer should have ended.
    async fn cancel_timeout(&self) {
        self.cancelled().await;
        if let Some(at) = self.0.at.get() {
            tokio::time::sleep_until(*at + CANCEL_TIMEOUT).await;
        }
    }

    /// Waits until a process that wrote its result has exited, at most for the grace period or until the cancel timeout.
    async fn wait_for_exit(&self, exited: impl Future<Output = ()>) {
        tokio::select! {
            () = exited => {}
            () = tokio::time::sleep(EXIT_GRACE_PERIOD) => {}
            () = self.cancel_timeout() => {}
        }
    }
}

/// A process group that is killed on drop.
#[derive(Debug)]
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// Must be called before its leader is reaped: afterwards the ID may belong to another process.
    fn kill(&self) {
        if let Some(pid) = self.0 {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The graft of a process's task tree. Marks it as interrupted on drop: a killed process cannot report its end.
#[derive(Debug)]
struct GraftGuard(Graft);

impl Drop for GraftGuard {
    fn drop(&mut self) {
        self.0.interrupt("mover process ended");
    }
}

/// Starts a process for a job and shows its task tree below `task`. The caller ends `task`. Requires a Tokio runtime.
pub fn spawn(command: &MoverCommand, job: &Job, task: &Task) -> Result<MoverProcess> {
    spawn_at(command, job, &task.graft(job.kind.name()))
}

/// Like [`spawn`], with a graft of the caller. For retries: an attempt replaces the task tree of the previous one.
///
/// The job with its secrets is written to the standard input, never to the arguments or the environment.
pub fn spawn_at(command: &MoverCommand, job: &Job, graft: &Graft) -> Result<MoverProcess> {
    let mut line = serde_json::to_vec(job).map_err(|error| MoverError::local("serialize a job", &error))?;
    line.push(b'\n');
    let mut child = Command::new(&command.program)
        .args(&command.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| MoverError::local(format!("start {}", command.program.display()), &error))?;
    let group = ProcessGroup(child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)));
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(MoverError::local("start a mover", &"no pipes"));
    };
    let canceller = Canceller::default();
    let (stdin_guard, released) = oneshot::channel();
    tokio::spawn(write_stdin(stdin, line, canceller.clone(), released));
    graft.restart();
    let (stdout, last_log_line, graft) = (BufReader::new(stdout), forward_log(stderr), GraftGuard(graft.clone()));
    Ok(MoverProcess { group, child, stdout, last_log_line, graft, canceller, _stdin_guard: stdin_guard })
}

/// Writes the job to the process, and the cancel command. The pipe stays open until the transfer is dropped: its end tells
/// the process that the parent is gone.
async fn write_stdin(mut stdin: ChildStdin, job: Vec<u8>, canceller: Canceller, mut released: oneshot::Receiver<()>) {
    let write = async {
        let _ = stdin.write_all(&job).await;
        canceller.cancelled().await;
        let _ = stdin.write_all(format!("{CANCEL}\n").as_bytes()).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = write => {}
        _ = &mut released => {}
    }
}

/// Forwards the log of the process and keeps its last line.
fn forward_log(stderr: ChildStderr) -> watch::Receiver<String> {
    let (to, from) = watch::channel(String::new());
    tokio::spawn(async move {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            tracing::info!(target: "plimsoll_mover::process", "{line}");
            to.send_replace(crate::program::truncate(&line));
        }
    });
    from
}

impl MoverProcess {
    /// The process ID.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// A handle that cancels the transfer from another task.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// Waits for the result of the process.
    ///
    /// # Cancel safety
    /// Dropping the future or the transfer kills the process and all its descendants.
    pub async fn wait(mut self) -> Result<Outcome> {
        let canceller = self.canceller.clone();
        let result = tokio::select! {
            result = self.read_messages() => result,
            () = canceller.cancel_timeout() => Ok(Some(Err(MoverError::Cancelled))),
        };
        let status = self.end().await;
        match result {
            Ok(Some(result)) => result,
            Err(error) => Err(error),
            Ok(None) if canceller.is_cancelled() => Err(MoverError::Cancelled),
            Ok(None) => Err(MoverError::ProcessDied { status, last_log_line: self.drain_log().await }),
        }
    }

    /// The last line of the log, after all of it was read. A descendant that still runs may keep the pipe open.
    async fn drain_log(&mut self) -> String {
        let end = async { while self.last_log_line.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(STDERR_DRAIN_TIMEOUT, end).await;
        self.last_log_line.borrow().clone()
    }

    /// Applies frames until the result or the end of the output.
    async fn read_messages(&mut self) -> Result<Option<Result<Outcome>>> {
        let mut line = Vec::new();
        let (process, task, mut is_hinted) = (self.id(), self.graft.0.task().clone(), false);
        loop {
            let Ok(more) = tokio::time::timeout(SILENCE_TIMEOUT, self.read_line(&mut line)).await else {
                if let Some(state) = process.and_then(process_state::describe_blocked) {
                    task.hint(state);
                    is_hinted = true;
                }
                continue;
            };
            if !more? {
                return Ok(None);
            }
            if std::mem::take(&mut is_hinted) {
                task.hint("mover process resumed");
            }
            match parse_message(&std::mem::take(&mut line))? {
                MoverMessage::Result(result) => return Ok(Some(result)),
                MoverMessage::Progress(frame) => {
                    let invalid =
                        |error: plimsoll_progress::FrameError| MoverError::Protocol { line: error.to_string() };
                    self.graft.0.apply(&frame).map_err(invalid)?;
                }
            }
        }
    }

    /// Reads a line, or the rest of the output. Returns whether there was one.
    ///
    /// # Cancel safety
    /// The bytes read so far are in `line`, and the next call continues.
    async fn read_line(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        let failed = |error: std::io::Error| MoverError::local("read from a mover", &error);
        loop {
            let available = self.stdout.fill_buf().await.map_err(failed)?;
            if available.is_empty() {
                return Ok(!line.is_empty());
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let length = end.unwrap_or(available.len());
            line.extend_from_slice(&available[..length]);
            self.stdout.consume(end.map_or(length, |at| at + 1));
            if end.is_some() {
                return Ok(true);
            }
            let limit = max_length(line);
            if line.len() > limit {
                return Err(MoverError::Protocol { line: format!("a line of more than {limit} bytes") });
            }
        }
    }

    /// Kills the process group, reaps the process, and describes its exit status.
    async fn end(&mut self) -> String {
        self.canceller.wait_for_exit(self.exited()).await;
        self.group.kill();
        self.group.0 = None;
        let limit = if self.canceller.is_cancelled() { KILL_TIMEOUT_AFTER_CANCEL } else { KILL_TIMEOUT };
        let status = tokio::time::timeout(limit, self.child.wait()).await;
        private_directory::remove_stale_directories();
        match status {
            Ok(status) => status.map_or_else(|error| error.to_string(), describe_status),
            Err(_) => "killed, not reaped yet".into(),
        }
    }

    /// Completes when the process has exited, without reaping it: its ID must stay reserved until the group is killed.
    async fn exited(&self) {
        let Some(pid) = self.group.0 else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while matches!(waitid(WaitId::Pid(pid), options), Ok(None)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The maximum length of a line that starts like this.
fn max_length(line: &[u8]) -> usize {
    if is_result(line) { MAX_RESULT_LENGTH } else { MAX_FRAME_LENGTH }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_process_that_does_not_exit_is_killed_within_five_seconds() {
        for result_after in [Duration::ZERO, CANCEL_TIMEOUT.saturating_sub(EXIT_GRACE_PERIOD / 2), CANCEL_TIMEOUT] {
            let canceller = Canceller::default();
            canceller.cancel();
            let cancelled = Instant::now();
            tokio::time::sleep(result_after).await;
            canceller.wait_for_exit(pending()).await;
            let ended = cancelled.elapsed() + KILL_TIMEOUT_AFTER_CANCEL;
            assert!(ended < Duration::from_secs(5), "result after {result_after:?}, end after {ended:?}");
        }
        let cancelled = Instant::now();
        Canceller::default().wait_for_exit(pending()).await;
        assert_eq!(cancelled.elapsed(), EXIT_GRACE_PERIOD, "without a cancel");
    }
}
