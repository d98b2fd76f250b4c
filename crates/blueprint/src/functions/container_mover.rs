//! Runs `plimsoll mover` in the container of an application, if the image has it.

use plimsoll_progress::{Clock, Frame, Replica};

use super::call::Call;
use super::data_movers::{DataMovers, MoverMessage, Repository};
use super::exec::{Exec, ExitResult, OutputListener, PROGRAM_NOT_FOUND};
use super::phase_meters::{Direction, TransferProgress};
use super::pod_io::byte_progress;
use super::restic::BackupSummary;
use crate::Error;

/// Number of last bytes of stderr in an error message.
const TAIL_BYTES: usize = 4 << 10;
/// Maximum length of a line of stdout.
const MAX_LINE_LENGTH: usize = 4 << 20;

/// `plimsoll mover` in one container.
struct ContainerMover<'a> {
    call: &'a Call,
    data_movers: &'a dyn DataMovers,
    at: (&'a str, &'a str, &'a str),
}

impl<'a> ContainerMover<'a> {
    /// Runs one job.
    async fn run(&self, job: String, mover: Option<&str>) -> Result<(Exec, ExitResult, MoverOutput<'a>), Error> {
        let command = ["plimsoll", "mover"].map(str::to_owned).to_vec();
        let (namespace, pod, container) = self.at;
        let exec = Exec::new(namespace, pod, Some(container), command).with_input(job);
        self.call.host.authorize_effect()?;
        let mut mover_output = MoverOutput::new(self.call, self.data_movers, mover);
        let ended = exec.run(&self.call.client, &mut mover_output).await?;
        Ok((exec, ended, mover_output))
    }
}

/// Backs up a path with `plimsoll mover` in a container (namespace, pod, container). `None` if the container has no such program.
pub async fn backup(
    call: &Call,
    at: (&str, &str, &str),
    repository: &Repository,
    (path, tag): (&str, &str),
) -> Result<Option<BackupSummary>, Error> {
    let Some(data_movers) = call.data_movers.as_deref() else { return Ok(None) };
    let container_mover = ContainerMover { call, data_movers, at };
    let (exec, ended, mover_output) = container_mover.run(data_movers.ensure(repository)?, None).await?;
    if matches!(ended, ExitResult::ExitCode(code) if PROGRAM_NOT_FOUND.contains(&code)) && mover_output.end.is_none() {
        return Ok(None);
    }
    mover_output.into_result(&exec, &ended)?;
    call.log(&format!("using plimsoll in pod {}", exec.path()));
    call.host.kill_point("phase.backup.before");
    let (exec, ended, mover_output) =
        container_mover.run(data_movers.backup(repository, path, tag)?, Some(at.1)).await?;
    let saved = mover_output.into_result(&exec, &ended)?;
    call.host.kill_point("phase.backup.after");
    saved.ok_or_else(|| exec.failed(0, "exited without a snapshot id")).map(Some)
}

/// The output of the program.
struct MoverOutput<'a> {
    call: &'a Call,
    data_movers: &'a dyn DataMovers,
    mover: Option<String>,
    replica: Replica,
    line: Vec<u8>,
    errors: Vec<u8>,
    end: Option<Result<Option<BackupSummary>, String>>,
}

impl<'a> MoverOutput<'a> {
    fn new(call: &'a Call, data_movers: &'a dyn DataMovers, mover: Option<&str>) -> Self {
        let mover = mover.map(str::to_owned);
        let replica = Replica::new(Clock::system());
        Self { call, data_movers, mover, replica, line: Vec::new(), errors: Vec::new(), end: None }
    }

    fn into_result(self, exec: &Exec, ended: &ExitResult) -> Result<Option<BackupSummary>, Error> {
        let code = if let ExitResult::ExitCode(code) = ended { *code } else { 0 };
        match self.end {
            Some(Ok(saved)) => Ok(saved),
            Some(Err(message)) => Err(exec.failed(code, &self.call.params.redact(&message))),
            None => {
                let stderr = String::from_utf8_lossy(&self.errors);
                Err(exec.failed(code, &self.call.params.redact(stderr.trim())))
            }
        }
    }

    fn process_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        match self.data_movers.parse_message(&line) {
            MoverMessage::Progress(frame) => self.show(&frame),
            MoverMessage::BackupSummary(saved) => self.end = Some(Ok(Some(saved))),
            MoverMessage::Done => self.end = Some(Ok(None)),
            MoverMessage::Failed(message) => self.end = Some(Err(message)),
            MoverMessage::Ignored => {}
        }
    }

    /// Shows the bytes read; the bytes sent are reported at the end.
    fn show(&mut self, frame: &Frame) {
        let (Some(mover), Ok(_)) = (&self.mover, self.replica.apply(frame)) else { return };
        if let Some(progress) = self.replica.snapshot().as_ref().and_then(|tree| byte_progress(Direction::Upload, tree))
        {
            self.call.meters.report(mover, TransferProgress { sent: None, ..progress });
        }
    }
}

impl OutputListener for MoverOutput<'_> {
    fn stdout(&mut self, chunk: &[u8]) -> Result<(), Error> {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + part.len() > MAX_LINE_LENGTH {
                return Err(Error::Unsupported(format!(
                    "plimsoll mover wrote a line of more than {MAX_LINE_LENGTH} bytes"
                )));
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.line.pop();
                self.process_line();
            }
        }
        Ok(())
    }

    fn stderr(&mut self, chunk: &[u8]) -> Result<(), Error> {
        self.errors.extend_from_slice(chunk);
        let surplus = self.errors.len().saturating_sub(TAIL_BYTES);
        self.errors.drain(..surplus);
        Ok(())
    }
}
