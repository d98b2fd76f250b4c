//! The other side: starts a mover's process, shows its tree, and answers for its end.

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
use crate::tool::how;
use crate::wire::{CANCEL, Line, is_verdict, parse};
use crate::{MoverError, Result, private, silent};

/// How long what a dead process said may take to be read.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(2);
/// After a cancel the process has this long; then it is killed. Five seconds are promised.
const STOP_WITHIN: Duration = Duration::from_millis(4500);
/// How long a process may take to end once it has said its last word.
const LAST_BREATH: Duration = Duration::from_secs(1);
/// How long a process that was killed may take to be gone, and how long after a cancel. One that flushes a slow disk is not gone
/// before the disk has answered; it does nothing more, and is reaped when it can be.
const GONE_WITHIN: Duration = Duration::from_secs(5);
const CANCELLED_WITHIN: Duration = Duration::from_millis(400);
/// A mover says something every second. One that has not for this long is looked at.
const SILENCE: Duration = Duration::from_secs(5);
/// No frame of a mover is longer than this.
const LONGEST_FRAME: usize = 32 << 20;
/// Nor a verdict than this. One lists all snapshots of a repository, and fifty thousand of them pass the limit of a
/// frame; this is room for eight times as many, and still a limit to what one process may have another hold in its
/// memory.
const LONGEST_VERDICT: usize = 256 << 20;

/// The command that runs a mover.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl Launch {
    /// This very program, asked to be a mover.
    pub fn this_program() -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| MoverError::local("find this program", &error))?;
        Ok(Self { program, arguments: vec!["mover".into()] })
    }
}

/// A mover's process that is at work. Dropping it kills the process and everything it started.
#[derive(Debug)]
pub struct Transfer {
    group: Group,
    child: Child,
    stdout: BufReader<ChildStdout>,
    last_words: watch::Receiver<String>,
    shown: Shown,
    canceller: Canceller,
    _held: oneshot::Sender<()>,
}

/// Stops a transfer from elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Canceller(Arc<Asked>);

#[derive(Debug, Default)]
struct Asked {
    at: OnceLock<Instant>,
    notify: Notify,
}

impl Canceller {
    /// Asks the transfer to stop: within five seconds it has.
    pub fn cancel(&self) {
        self.0.at.get_or_init(Instant::now);
        self.0.notify.notify_waiters();
    }

    /// Whether somebody has asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.at.get().is_some()
    }

    async fn asked(&self) {
        let mut notified = std::pin::pin!(self.0.notify.notified());
        // Registered before the flag is read, or a word in between would be lost.
        notified.as_mut().enable();
        if !self.is_cancelled() {
            notified.await;
        }
    }

    /// Ends when a transfer that was asked to stop should have stopped.
    async fn overdue(&self) {
        self.asked().await;
        if let Some(asked) = self.0.at.get() {
            tokio::time::sleep_until(*asked + STOP_WITHIN).await;
        }
    }

    /// Waits until a process that has said its last word has `ended`, but not for long, and not once its time is up.
    async fn last_breath(&self, ended: impl Future<Output = ()>) {
        tokio::select! {
            () = ended => {}
            () = tokio::time::sleep(LAST_BREATH) => {}
            () = self.overdue() => {}
        }
    }
}

/// A process group that is gone when this is.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    /// Only before its leader has been waited for: afterwards the number may belong to somebody else.
    fn kill(&self) {
        if let Some(pid) = self.0 {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The place where a process's tree is shown. Nothing looks at work there when this is gone: whoever was killed could not tell.
#[derive(Debug)]
struct Shown(Graft);

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.interrupt("its process has ended");
    }
}

/// Starts a process for a job and shows its tree below `task`, which is the caller's to end. Needs a Tokio runtime.
pub fn spawn(launch: &Launch, job: &Job, task: &Task) -> Result<Transfer> {
    spawn_at(launch, job, &task.graft(job.kind.name()))
}

/// The same in a place of the caller's, for work that is tried more than once: an attempt takes the place of the one before.
///
/// The job, secrets and all, goes over the process's standard input: never into its arguments or its environment.
pub fn spawn_at(launch: &Launch, job: &Job, place: &Graft) -> Result<Transfer> {
    let mut line = serde_json::to_vec(job).map_err(|error| MoverError::local("write a job", &error))?;
    line.push(b'\n');
    let mut child = Command::new(&launch.program)
        .args(&launch.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| MoverError::local(format!("start {}", launch.program.display()), &error))?;
    let group = Group(child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)));
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(MoverError::local("start a mover", &"it has no pipes"));
    };
    let canceller = Canceller::default();
    let (held, released) = oneshot::channel();
    tokio::spawn(speak(stdin, line, canceller.clone(), released));
    place.restart();
    let (stdout, last_words, shown) = (BufReader::new(stdout), hear(stderr), Shown(place.clone()));
    Ok(Transfer { group, child, stdout, last_words, shown, canceller, _held: held })
}

/// Gives the job to the process, and the word that stops it. The pipe stays open for as long as the transfer is wanted:
/// its end tells the process that nobody is left to work for.
async fn speak(mut stdin: ChildStdin, job: Vec<u8>, canceller: Canceller, mut released: oneshot::Receiver<()>) {
    let talk = async {
        let _ = stdin.write_all(&job).await;
        canceller.asked().await;
        let _ = stdin.write_all(format!("{CANCEL}\n").as_bytes()).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = talk => {}
        _ = &mut released => {}
    }
}

/// Reads the process's log, for its last words.
fn hear(stderr: ChildStderr) -> watch::Receiver<String> {
    let (to, from) = watch::channel(String::new());
    tokio::spawn(async move {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            tracing::info!(target: "plimsoll_mover::process", "{line}");
            to.send_replace(crate::tool::cut(&line));
        }
    });
    from
}

impl Transfer {
    /// The number of the mover's process.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// What stops it from elsewhere.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// Follows the process to its end.
    ///
    /// # Cancel safety
    /// Dropping the future, or the transfer, kills the process and everything it started.
    pub async fn wait(mut self) -> Result<Outcome> {
        let canceller = self.canceller.clone();
        let verdict = tokio::select! {
            verdict = self.follow() => verdict,
            () = canceller.overdue() => Ok(Some(Err(MoverError::Cancelled))),
        };
        let status = self.end().await;
        match verdict {
            Ok(Some(verdict)) => verdict,
            Err(error) => Err(error),
            Ok(None) if canceller.is_cancelled() => Err(MoverError::Cancelled),
            Ok(None) => Err(MoverError::Died { how: status, last: self.heard().await }),
        }
    }

    /// The last words, once all has been read that was said. Something that was started and lives on may keep the line open.
    async fn heard(&mut self) -> String {
        let end = async { while self.last_words.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(LAST_WORDS_WITHIN, end).await;
        self.last_words.borrow().clone()
    }

    /// Shows frames until there is a verdict, or nothing more to read.
    async fn follow(&mut self) -> Result<Option<Result<Outcome>>> {
        let mut line = Vec::new();
        let (process, task, mut explained) = (self.id(), self.shown.0.task().clone(), false);
        loop {
            let Ok(more) = tokio::time::timeout(SILENCE, self.read_line(&mut line)).await else {
                // What the system says about it is all that can be known about a process that says nothing.
                if let Some(words) = process.and_then(silent::words) {
                    task.hint(words);
                    explained = true;
                }
                continue;
            };
            if !more? {
                return Ok(None);
            }
            if std::mem::take(&mut explained) {
                task.hint("its process goes on again");
            }
            match parse(&std::mem::take(&mut line))? {
                Line::Verdict(verdict) => return Ok(Some(verdict)),
                Line::Frame(frame) => {
                    let garbage =
                        |error: plimsoll_progress::FrameError| MoverError::Garbage { line: error.to_string() };
                    self.shown.0.apply(&frame).map_err(garbage)?;
                }
            }
        }
    }

    /// Reads to the end of a line, or to the end of all; says whether there is one.
    ///
    /// # Cancel safety
    /// What was read is in `line`, and the next call goes on from there.
    async fn read_line(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        let failed = |error: std::io::Error| MoverError::local("read from a mover", &error);
        loop {
            let available = self.stdout.fill_buf().await.map_err(failed)?;
            if available.is_empty() {
                return Ok(!line.is_empty());
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(available.len());
            line.extend_from_slice(&available[..taken]);
            self.stdout.consume(end.map_or(taken, |at| at + 1));
            if end.is_some() {
                return Ok(true);
            }
            let longest = longest(line);
            if line.len() > longest {
                return Err(MoverError::Garbage { line: format!("a line of more than {longest} bytes") });
            }
        }
    }

    /// Sees that nothing of it is left, and says how the process ended.
    async fn end(&mut self) -> String {
        self.canceller.last_breath(self.ended_by_itself()).await;
        self.group.kill();
        self.group.0 = None;
        let limit = if self.canceller.is_cancelled() { CANCELLED_WITHIN } else { GONE_WITHIN };
        let status = tokio::time::timeout(limit, self.child.wait()).await;
        private::sweep();
        match status {
            Ok(status) => status.map_or_else(|error| error.to_string(), how),
            Err(_) => "killed, and not gone yet".into(),
        }
    }

    /// Without reaping it: its number must stay its own until the group has been killed.
    async fn ended_by_itself(&self) {
        let Some(pid) = self.group.0 else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while matches!(waitid(WaitId::Pid(pid), options), Ok(None)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// How long a line that begins like this may become.
fn longest(line: &[u8]) -> usize {
    if is_verdict(line) { LONGEST_VERDICT } else { LONGEST_FRAME }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_that_does_not_go_gets_no_breath_beyond_the_five_seconds_that_are_promised() {
        for said_after in [Duration::ZERO, STOP_WITHIN.saturating_sub(LAST_BREATH / 2), STOP_WITHIN] {
            let canceller = Canceller::default();
            canceller.cancel();
            let asked = Instant::now();
            tokio::time::sleep(said_after).await;
            canceller.last_breath(pending()).await;
            let ended = asked.elapsed() + CANCELLED_WITHIN;
            assert!(ended < Duration::from_secs(5), "its last word after {said_after:?}, its end after {ended:?}");
        }
        let asked = Instant::now();
        Canceller::default().last_breath(pending()).await;
        assert_eq!(asked.elapsed(), LAST_BREATH, "nobody is in a hurry");
    }
}
