//! The mover's own process: one job from standard input, frames and a verdict to standard output.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};

use plimsoll_progress::{Clock, Counts, Encoder, Ending, Operation, Snapshot, Task, Total, Unit};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::confine::confine;
use crate::job::{Job, Kind, Work};
use crate::mover::{Session, mover};
use crate::outcome::Outcome;
use crate::status::SCANNING;
use crate::traffic::Traffic;
use crate::wire::{CANCEL, verdict_line};
use crate::{Cancel, MoverError, Result, private};

/// No job is longer than this.
const LONGEST_JOB: u64 = 16 << 20;

/// Carries out the one job that `input` describes. Says whether it ended well.
///
/// `guard` is the command (with arguments) that starts this same program so that it calls [`guard`].
///
/// When `input` ends, whoever started this process is gone: it removes its secrets and kills itself with everything it
/// started. (A death signal would not do: it is sent when the *thread* that started a process ends.)
pub fn run(input: impl Read + Send + 'static, output: &mut dyn Write, guard: Vec<OsString>) -> bool {
    private::sweep();
    let mut input = BufReader::new(input);
    let job = match read_job(&mut input) {
        Ok(job) => job,
        Err(error) => {
            // Whoever reads this has nothing else to go by; whoever does not is gone.
            let _ = write_line(output, &verdict_line(Err(error)));
            return false;
        }
    };
    let cancel = Cancel::default();
    listen(input, cancel.clone());
    let operation = Operation::new(&job.name, Clock::system());
    let result = report(&job, &operation, output, &start(&job, operation.root(), cancel, guard));
    let ended_well = result.is_ok();
    write_line(output, &verdict_line(result)).is_ok() && ended_well
}

fn read_job(input: &mut impl BufRead) -> Result<Job> {
    let mut line = Vec::new();
    let read = input.by_ref().take(LONGEST_JOB).read_until(b'\n', &mut line);
    read.map_err(|error| MoverError::InvalidJob { cause: error.to_string() })?;
    // serde's errors name the field and the place, never a secret's text.
    serde_json::from_slice(&line).map_err(|error| MoverError::InvalidJob { cause: error.to_string() })
}

/// Hears the word that stops the job, and the silence of a dead parent.
fn listen(mut input: impl BufRead + Send + 'static, cancel: Cancel) {
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
    let leads_its_group = rustix::process::getpgrp() == rustix::process::getpid();
    if !leads_its_group {
        // Started by hand: the group is somebody's shell.
        cancel.cancel();
        return;
    }
    private::remove_own();
    let _ = rustix::process::kill_current_process_group(Signal::KILL);
}

type Started = std::sync::mpsc::Receiver<Result<Outcome>>;

/// The job runs on a thread that lives exactly as long as it: programs it starts are told to die with that thread.
fn start(job: &Job, task: Task, cancel: Cancel, guard: Vec<OsString>) -> Started {
    let (to, from) = channel();
    let job = job.clone();
    std::thread::spawn(move || {
        let _ = to.send(Session::new(&job, task, cancel, guard).and_then(|session| work(&job, &session)));
    });
    from
}

fn work(job: &Job, session: &Session) -> Result<Outcome> {
    let mover = mover(job.kind);
    session.task.say(format!("starting {}", job.kind.name()));
    match &job.work {
        Work::Backup(backup) if backup.at.is_some() && job.kind != Kind::BuiltIn => {
            Err(MoverError::InvalidJob { cause: format!("{} cannot place a directory elsewhere", job.kind.name()) })
        }
        Work::Backup(backup) => mover.backup(backup, session).map(Outcome::Backup),
        Work::Restore(restore) => {
            let outcome = mover.restore(restore, session)?;
            session.task.say("flushing what was written");
            flush(&restore.directory)?;
            Ok(Outcome::Restore(outcome))
        }
        Work::Ensure => mover.ensure(session).map(Outcome::Ensured),
        Work::Snapshots => mover.snapshots(session).map(Outcome::Snapshots),
        Work::Forget { snapshots } => mover.forget(snapshots, session).map(Outcome::Forgotten),
        Work::Locks => mover.locks(session).map(Outcome::Locks),
        Work::Unlock { locks } => mover.unlock(locks, session).map(Outcome::Unlocked),
    }
}

/// Whoever hears that the data is there starts an application on it: from then on a node that loses its power must not lose the
/// data any more. One call for the whole file system, because no program tells which files it wrote.
fn flush(directory: &Path) -> Result<()> {
    let path = || directory.display().to_string();
    let opened =
        File::open(directory).map_err(|error| MoverError::Volume { path: path(), cause: error.to_string() })?;
    rustix::fs::syncfs(&opened).map_err(|error| match error {
        // Room may be found missing as late as this.
        Errno::NOSPC | Errno::DQUOT => MoverError::VolumeFull { path: path() },
        error => MoverError::Volume { path: path(), cause: format!("flushing it: {error}") },
    })
}

/// Sends a frame in every interval, changed or not: a sign of life.
fn report(job: &Job, operation: &Operation, output: &mut dyn Write, started: &Started) -> Result<Outcome> {
    let mut encoder = Encoder::new(job.epoch);
    // Where another program does the work, what this process reads is only what that one says.
    let mut traffic = (job.kind == Kind::BuiltIn).then(Traffic::of_this_process);
    loop {
        if traffic.as_mut().is_some_and(Traffic::has_moved) {
            operation.root().touch();
        }
        let line = encoder.encode_always(&seen(job, operation)).to_line();
        write_line(output, &line).map_err(|error| MoverError::local("write a frame", &error))?;
        if let Some(traffic) = &mut traffic {
            traffic.ignore(line.len() + 1);
        }
        let result = match started.recv_timeout(job.interval()) {
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => {
                Err(MoverError::Local { what: format!("{} mover", job.kind.name()), cause: "it panicked".into() })
            }
            Ok(result) => result,
        };
        operation.end(ending(&result));
        let frame = encoder.encode_always(&operation.snapshot());
        write_line(output, &frame.to_line()).map_err(|error| MoverError::local("write a frame", &error))?;
        return result;
    }
}

/// The tree as others see it. Our own mover looks through a volume while it stores the first files: as long as it does, that
/// is what it says, as with every other mover.
fn seen(job: &Job, operation: &Operation) -> Snapshot {
    let mut snapshot = operation.snapshot();
    if let (Kind::BuiltIn, Work::Backup(_)) = (job.kind, &job.work)
        && let Some(root) = snapshot.nodes.first_mut()
        && root.counts(Unit::Bytes).is_some_and(is_looking)
    {
        root.item = Some(SCANNING.into());
    }
    snapshot
}

/// Whether the total may still grow. One that is unknown while something is done already is that of a volume with a parent.
fn is_looking(counts: &Counts) -> bool {
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

/// Becomes `command`, which from now on dies with the process `parent` and, if `writes` names any, writes nowhere but below these
/// places. Returns only if that fails.
pub fn guard(parent: u32, writes: &[PathBuf], command: &[OsString]) -> MoverError {
    let Some((program, arguments)) = command.split_first() else {
        return MoverError::InvalidJob { cause: "no program is given to guard".into() };
    };
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return MoverError::local("ask for a death signal", &error);
    }
    // The parent may have died before the line above.
    let alive = rustix::process::getppid().map(Pid::as_raw_pid).and_then(|pid| u32::try_from(pid).ok()) == Some(parent);
    if !alive {
        return MoverError::Local { what: "start a program".into(), cause: "its mover is gone".into() };
    }
    if !writes.is_empty()
        && let Err(error) = confine(writes)
    {
        return MoverError::local(format!("confine {}", program.to_string_lossy()), &error);
    }
    let error = std::process::Command::new(program).args(arguments).exec();
    MoverError::MissingProgram { program: program.to_string_lossy().into_owned(), cause: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_progress::VirtualClock;
    use plimsoll_testkit::wait::until_blocking;

    use super::*;
    use crate::{Place, Repository, Secret};

    #[test]
    fn what_a_mover_itself_reads_is_no_sign_of_life_of_its_program() {
        let clock = VirtualClock::new();
        let operation = Operation::new("transfer", clock.clock());
        let repository = Repository { place: Place::directory("/nowhere", "r"), password: Secret::new("p") };
        let mut job = Job::new("transfer", Kind::Restic, repository, Work::Locks);
        job.interval = 50;
        let (end, started) = channel();
        std::thread::scope(|scope| {
            let (job, operation) = (&job, &operation);
            scope.spawn(move || report(job, operation, &mut std::io::sink(), &started));
            let stall = until_blocking("a stall", Duration::from_secs(5), || {
                std::fs::read("/proc/self/exe").expect("much to read");
                clock.advance(Duration::from_secs(1));
                operation.snapshot().stall
            });
            end.send(Ok(Outcome::Unlocked(0))).expect("it waits for the end");
            assert!(stall.is_ok());
        });
    }
}
