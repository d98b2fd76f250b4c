//! Our own program inside the application's container, where somebody has put it.

use plimsoll_progress::{Clock, Frame, Replica};

use super::call::{Call, Direction, Moved};
use super::exec::{Ended, Exec, Listener, NO_PROGRAM};
use super::movers::{Movers, Repository, Said};
use super::restic::Saved;
use super::talk::moved;
use crate::Error;

/// So much of what it logs is kept for an error message.
const LAST_BYTES: usize = 4 << 10;
/// No line of it is longer than this.
const LONGEST_LINE: usize = 4 << 20;

/// Our own program in one container.
struct Own<'a> {
    call: &'a Call,
    movers: &'a dyn Movers,
    at: (&'a str, &'a str, &'a str),
}

impl<'a> Own<'a> {
    /// Has it carry out one job.
    async fn run(&self, job: String, mover: Option<&str>) -> Result<(Exec, Ended, Heard<'a>), Error> {
        let command = ["plimsoll", "mover"].map(str::to_owned).to_vec();
        let (namespace, pod, container) = self.at;
        let exec = Exec::new(namespace, pod, Some(container), command).with_input(job);
        self.call.host.effect()?;
        let mut heard = Heard::new(self.call, self.movers, mover);
        let ended = exec.run(&self.call.client, &mut heard).await?;
        Ok((exec, ended, heard))
    }
}

/// Backs a path up with our own program in a container: namespace, pod, container. Nothing if it is not there.
pub async fn save(
    call: &Call,
    at: (&str, &str, &str),
    repository: &Repository,
    (path, tag): (&str, &str),
) -> Result<Option<Saved>, Error> {
    let Some(movers) = call.movers.as_deref() else { return Ok(None) };
    let own = Own { call, movers, at };
    let (exec, ended, heard) = own.run(movers.ensure(repository)?, None).await?;
    if matches!(ended, Ended::Badly(code) if NO_PROGRAM.contains(&code)) && heard.end.is_none() {
        return Ok(None);
    }
    heard.judge(&exec, &ended)?;
    call.log(&format!("pod {} has our own program", exec.path()));
    call.host.point("phase.backup.before");
    let (exec, ended, heard) = own.run(movers.backup(repository, path, tag)?, Some(at.1)).await?;
    let saved = heard.judge(&exec, &ended)?;
    call.host.point("phase.backup.after");
    saved.ok_or_else(|| exec.failed(0, "it ended without saying which snapshot it made")).map(Some)
}

/// What it has said.
struct Heard<'a> {
    call: &'a Call,
    movers: &'a dyn Movers,
    mover: Option<String>,
    replica: Replica,
    line: Vec<u8>,
    errors: Vec<u8>,
    end: Option<Result<Option<Saved>, String>>,
}

impl<'a> Heard<'a> {
    fn new(call: &'a Call, movers: &'a dyn Movers, mover: Option<&str>) -> Self {
        let mover = mover.map(str::to_owned);
        let replica = Replica::new(Clock::system());
        Self { call, movers, mover, replica, line: Vec::new(), errors: Vec::new(), end: None }
    }

    fn judge(self, exec: &Exec, ended: &Ended) -> Result<Option<Saved>, Error> {
        let code = if let Ended::Badly(code) = ended { *code } else { 0 };
        match self.end {
            Some(Ok(saved)) => Ok(saved),
            Some(Err(why)) => Err(exec.failed(code, &self.call.params.redact(&why))),
            None => {
                let words = String::from_utf8_lossy(&self.errors);
                Err(exec.failed(code, &self.call.params.redact(words.trim())))
            }
        }
    }

    fn hear(&mut self) {
        let line = std::mem::take(&mut self.line);
        match self.movers.understand(&line) {
            Said::Progress(frame) => self.show(&frame),
            Said::Saved(saved) => self.end = Some(Ok(Some(saved))),
            Said::Done => self.end = Some(Ok(None)),
            Said::Failed(why) => self.end = Some(Err(why)),
            Said::Nothing => {}
        }
    }

    /// Bytes that were read; how many of them were sent is said at the end.
    fn show(&mut self, frame: &Frame) {
        let (Some(mover), Ok(_)) = (&self.mover, self.replica.apply(frame)) else { return };
        if let Some(moved) = self.replica.snapshot().as_ref().and_then(|tree| moved(Direction::Up, tree)) {
            self.call.gauge.moved(mover, Moved { sent: None, ..moved });
        }
    }
}

impl Listener for Heard<'_> {
    fn stdout(&mut self, piece: &[u8]) -> Result<(), Error> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + part.len() > LONGEST_LINE {
                return Err(Error::Unsupported(format!(
                    "a line of more than {LONGEST_LINE} bytes from our own program"
                )));
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.line.pop();
                self.hear();
            }
        }
        Ok(())
    }

    fn stderr(&mut self, piece: &[u8]) -> Result<(), Error> {
        self.errors.extend_from_slice(piece);
        let surplus = self.errors.len().saturating_sub(LAST_BYTES);
        self.errors.drain(..surplus);
        Ok(())
    }
}
