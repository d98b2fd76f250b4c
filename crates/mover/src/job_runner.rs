//! The mover process: reads one job from standard input, writes frames and a result to standard output.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use plimsoll_progress::{Clock, Counts, Encoder, Ending, Operation, Snapshot, Task, Total, Unit};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::job::{Job, MoverKind, Work};
use crate::mover::{Session, mover};
use crate::outcome::Outcome;
use crate::process_io::ProcessIo;
use crate::protocol::{CANCEL, result_line};
use crate::sandbox::restrict_writes;
use crate::transfer_progress::SCANNING;
use crate::{Cancel, MoverError, Result, private_directory};

const MAX_JOB_LENGTH: u64 = 16 << 20;
/// How long a cancelled job whose result nothing reads may take to end.
const ABANDONED_JOB_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the job that `input` describes. Returns whether it succeeded.
///
/// `guard` is the command (with arguments) that starts this same program so that it calls [`guard`].
///
/// When `input` ends, the parent process is gone: the mover removes its secrets and kills itself with all its descendants. (A
/// parent death signal is not enough: it is sent when the *thread* that started a process ends.)
pub fn run(input: impl Read + Send + 'static, output: &mut dyn Write, guard: Vec<OsString>) -> bool {
    private_directory::remove_stale_directories();
    let mut input = BufReader::new(input);
    let job = match read_job(&mut input) {
        Ok(job) => job,
        Err(error) => {
            // A failed write means that the parent is gone.
            let _ = write_line(output, &result_line(Err(error)));
            return false;
        }
    };
    let cancel = Cancel::default();
    read_commands(input, cancel.clone());
    let operation = Operation::new(&job.name, Clock::system());
    let receiver = start(&job, operation.root(), cancel.clone(), guard);
    let result = report(&job, &operation, output, &receiver);
    let is_successful = result.is_ok();
    let is_reported = write_line(output, &result_line(result)).is_ok();
    if !is_reported {
        // The reader is gone, and the job may still run: returning now would leave its secrets behind.
        die_with_parent(&cancel);
        tracing::warn!(
            "job {}: nothing reads its result; waiting up to {}s for it to end, to remove its secrets",
            job.name,
            ABANDONED_JOB_TIMEOUT.as_secs()
        );
        let _ = receiver.recv_timeout(ABANDONED_JOB_TIMEOUT);
        private_directory::remove_own();
    }
    is_reported && is_successful
}

fn read_job(input: &mut impl BufRead) -> Result<Job> {
    let mut line = Vec::new();
    let read = input.by_ref().take(MAX_JOB_LENGTH).read_until(b'\n', &mut line);
    read.map_err(|error| MoverError::InvalidJob { cause: error.to_string() })?;
    // Errors of serde contain the field and the position, never the text of a secret.
    serde_json::from_slice(&line).map_err(|error| MoverError::InvalidJob { cause: error.to_string() })
}

/// Handles the cancel command and the end of the parent.
fn read_commands(mut input: impl BufRead + Send + 'static, cancel: Cancel) {
    std::thread::spawn(move || {
        let mut line = String::new();
        while matches!(input.read_line(&mut line), Ok(1..)) {
            if line.trim_end() == CANCEL {
                cancel.cancel();
            }
            line.clear();
        }
        die_with_parent(&cancel);
    });
}

fn die_with_parent(cancel: &Cancel) {
    let is_group_leader = rustix::process::getpgrp() == rustix::process::getpid();
    if !is_group_leader {
        // Started from a shell, whose group it is.
        cancel.cancel();
        return;
    }
    private_directory::remove_own();
    let _ = rustix::process::kill_current_process_group(Signal::KILL);
}

type ResultReceiver = std::sync::mpsc::Receiver<Result<Outcome>>;

/// Runs the job on a thread of its own: the programs that it starts get a death signal when that thread ends.
fn start(job: &Job, task: Task, cancel: Cancel, guard: Vec<OsString>) -> ResultReceiver {
    let (to, from) = channel();
    let job = job.clone();
    std::thread::spawn(move || {
        let _ = to.send(Session::new(&job, task, cancel, guard).and_then(|session| perform(&job, &session)));
    });
    from
}

fn perform(job: &Job, session: &Session) -> Result<Outcome> {
    let mover = mover(job.kind);
    session.task.say(format!("starting {}", job.kind.name()));
    match &job.work {
        Work::Backup(backup) if backup.at.is_some() && job.kind != MoverKind::BuiltIn => Err(MoverError::InvalidJob {
            cause: format!("the {} mover does not support a target path", job.kind.name()),
        }),
        Work::Backup(backup) => mover.backup(backup, session).map(Outcome::Backup),
        Work::Restore(restore) => {
            let outcome = mover.restore(restore, session)?;
            let _waiting = session.task.wait_quietly("flushing the volume", None);
            flush(&restore.directory)?;
            Ok(Outcome::Restore(outcome))
        }
        Work::Ensure => mover.ensure(session).map(Outcome::Ensure),
        Work::Snapshots => mover.snapshots(session).map(Outcome::Snapshots),
        Work::Forget { snapshots } => mover.forget(snapshots, session).map(Outcome::Forgotten),
        Work::Maintain(maintenance) => mover.maintain(*maintenance, session).map(Outcome::Maintained),
        Work::Locks => mover.locks(session).map(Outcome::Locks),
        Work::Unlock { locks } => mover.unlock(locks, session).map(Outcome::Unlocked),
    }
}

/// Flushes the restored data. An application starts as soon as the restore is reported, and a power loss must not lose the data
/// from then on. One call for the whole file system, because the programs do not report which files they wrote.
fn flush(directory: &Path) -> Result<()> {
    let path = || directory.display().to_string();
    let opened =
        File::open(directory).map_err(|error| MoverError::Volume { path: path(), cause: error.to_string() })?;
    rustix::fs::syncfs(&opened).map_err(|error| match error {
        // Some file systems report a lack of space as late as this.
        Errno::NOSPC | Errno::DQUOT => MoverError::VolumeFull { path: path() },
        error => MoverError::Volume { path: path(), cause: format!("sync: {error}") },
    })
}

/// Sends a frame in every interval, changed or not, as a heartbeat.
fn report(job: &Job, operation: &Operation, output: &mut dyn Write, result: &ResultReceiver) -> Result<Outcome> {
    let mut encoder = Encoder::new(job.epoch);
    // If an external program does the work, this process only reads its output.
    let mut io = (job.kind == MoverKind::BuiltIn).then(ProcessIo::of_this_process);
    loop {
        if let Some(bytes) = io.as_mut().and_then(ProcessIo::take_progress) {
            operation.root().process_moved(bytes);
        }
        let line = encoder.encode_always(&snapshot(job, operation)).to_line();
        write_line(output, &line).map_err(|error| MoverError::local("write a frame", &error))?;
        if let Some(io) = &mut io {
            io.ignore(line.len() + 1);
        }
        let result = match result.recv_timeout(job.interval()) {
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => {
                Err(MoverError::Local { action: format!("run the {} mover", job.kind.name()), cause: "panic".into() })
            }
            Ok(result) => result,
        };
        operation.end(ending(&result));
        let frame = encoder.encode_always(&operation.snapshot());
        write_line(output, &frame.to_line()).map_err(|error| MoverError::local("write a frame", &error))?;
        return result;
    }
}

/// The task tree to report. The built-in mover scans a volume while it stores the first files: until the scan ends it reports
/// the scan, like every other mover.
fn snapshot(job: &Job, operation: &Operation) -> Snapshot {
    let mut snapshot = operation.snapshot();
    if let (MoverKind::BuiltIn, Work::Backup(_)) = (job.kind, &job.work)
        && let Some(root) = snapshot.nodes.first_mut()
        && root.counts(Unit::Bytes).is_some_and(is_scanning)
    {
        root.item = Some(SCANNING.into());
    }
    snapshot
}

/// Whether the total may still grow. With a parent snapshot the total is unknown while the first files are done.
fn is_scanning(counts: &Counts) -> bool {
    match counts.total {
        Total::Unknown => counts.settled() > 0,
        Total::Growing(_) => true,
        Total::Final(_) => false,
    }
}

fn ending(result: &Result<Outcome>) -> Ending {
    match result {
        Ok(_) => Ending::Succeeded,
        Err(MoverError::Cancelled) => Ending::Cancelled("cancelled".into()),
        Err(error) => Ending::Failed(error.to_string()),
    }
}

fn write_line(output: &mut dyn Write, line: &str) -> std::io::Result<()> {
    output.write_all(line.as_bytes())?;
    output.write_all(b"\n")?;
    output.flush()
}

/// Executes `command` in this process, with a death signal from the process `parent`. If `writable_paths` is not empty, the
/// program can write only below these paths. Returns only on failure.
pub fn guard(parent: u32, writable_paths: &[PathBuf], command: &[OsString]) -> MoverError {
    let Some((program, arguments)) = command.split_first() else {
        return MoverError::InvalidJob { cause: "no program to guard".into() };
    };
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return MoverError::local("set the parent death signal", &error);
    }
    // The parent may have died before the line above.
    let alive = rustix::process::getppid().map(Pid::as_raw_pid).and_then(|pid| u32::try_from(pid).ok()) == Some(parent);
    if !alive {
        return MoverError::Local { action: "start a program".into(), cause: "its mover has exited".into() };
    }
    if !writable_paths.is_empty()
        && let Err(error) = restrict_writes(writable_paths)
    {
        return MoverError::local(format!("sandbox {}", program.to_string_lossy()), &error);
    }
    let error = std::process::Command::new(program).args(arguments).exec();
    MoverError::ProgramNotFound { program: program.to_string_lossy().into_owned(), cause: error.to_string() }
}

#[cfg(test)]
mod tests {

    use plimsoll_progress::VirtualClock;
    use plimsoll_testkit::wait::until_blocking;

    use super::*;
    use crate::{Repository, RepositoryLocation, Secret};

    #[test]
    fn reads_of_the_mover_do_not_count_as_progress_of_its_program() {
        let clock = VirtualClock::new();
        let operation = Operation::new("transfer", clock.clock());
        let repository =
            Repository { location: RepositoryLocation::directory("/nowhere", "r"), password: Secret::new("p") };
        let mut job = Job::new("transfer", MoverKind::Restic, repository, Work::Locks);
        job.interval = 50;
        let (end, result) = channel();
        std::thread::scope(|scope| {
            let (job, operation) = (&job, &operation);
            scope.spawn(move || report(job, operation, &mut std::io::sink(), &result));
            let stall = until_blocking("a stall", Duration::from_mins(1), || {
                std::fs::read("/proc/self/exe").expect("readable");
                clock.advance(Duration::from_secs(1));
                operation.snapshot().stall
            });
            end.send(Ok(Outcome::Unlocked(0))).expect("a receiver");
            assert!(stall.is_ok());
        });
    }
}
