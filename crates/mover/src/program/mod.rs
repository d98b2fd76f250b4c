//! External programs: reads their output line by line, maps their exit status, and stops them with the mover.

mod output;
mod text;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

pub(crate) use self::output::Stream;
use self::output::{Tail, spawn_readers};
pub(crate) use self::text::truncate;
use self::text::{truncate_front, without_stack};
use crate::interrupt::Interrupt;
use crate::mover::Session;
use crate::process_io::ProcessIo;
use crate::version::Version;
use crate::{MoverError, Result};

/// A program and its version.
#[derive(Debug)]
pub(crate) struct Program {
    pub name: &'static str,
    pub path: PathBuf,
    pub version: Version,
    strip_progress: StripProgress,
}

/// Returns a line of a program's standard error without progress output.
pub(crate) type StripProgress = fn(&str) -> &str;

/// The exit of a program.
#[derive(Debug)]
pub(crate) struct Exit {
    pub status: ExitStatus,
    /// The end of its standard error, without progress output.
    pub stderr_tail: String,
}

impl Exit {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

/// Describes an exit code or signal.
pub(crate) fn describe_status(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(9)) => "killed by signal 9, possibly out of memory".into(),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "unknown exit status".into(),
    }
}

/// Environment variables that programs inherit. None contains a secret.
const INHERITED_VARIABLES: &[&str] = &[
    "PATH",
    "LANG",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "GOMAXPROCS",
    "GOMEMLIMIT",
    "GOGC",
];
/// Environment variables of the pod's identity, inherited if the location has no credentials.
const IDENTITY_VARIABLES: &[&str] = &[
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_SESSION_NAME",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "AZURE_CLIENT_ID",
    "AZURE_TENANT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_AUTHORITY_HOST",
];

impl Program {
    /// Finds a program and rejects a version that is too old.
    pub(crate) fn find(
        name: &'static str,
        version_argument: &str,
        minimum: Version,
        strip_progress: StripProgress,
        session: &Session,
    ) -> Result<Self> {
        let path = session.program.clone().unwrap_or_else(|| PathBuf::from(name));
        let path = look_up(&path).map_err(|cause| MoverError::ProgramNotFound { program: name.into(), cause })?;
        let unchecked = Self { name, path, version: minimum, strip_progress };
        let (output, exit) = unchecked.capture(unchecked.command(session, [version_argument]), session)?;
        let version = Version::find(&output).ok_or_else(|| MoverError::UnexpectedOutput {
            program: name.into(),
            output: format!("{} {}", truncate(&output), truncate(&exit.stderr_tail)),
        })?;
        if version < minimum {
            let (version, minimum) = (version.to_string(), minimum.to_string());
            return Err(MoverError::ProgramTooOld { program: name.into(), version, minimum });
        }
        Ok(Self { version, ..unchecked })
    }

    /// A command with a clean environment that is killed when this thread ends.
    pub(crate) fn command<I: AsRef<OsStr>>(
        &self,
        session: &Session,
        arguments: impl IntoIterator<Item = I>,
    ) -> Command {
        let mut command = guarded(session, &self.path);
        command.args(arguments).env_clear();
        let identity: &[&str] =
            if session.repository.location.credentials.is_none() { IDENTITY_VARIABLES } else { &[] };
        for name in INHERITED_VARIABLES.iter().chain(identity) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("HOME", session.private.path()).env("TMPDIR", session.scratch.path());
        command
    }

    /// Runs a command and returns its standard output.
    pub(crate) fn capture(&self, command: Command, session: &Session) -> Result<(String, Exit)> {
        self.capture_with_input(command, session, &[])
    }

    /// Runs a command with `input` on its standard input and returns its standard output.
    pub(crate) fn capture_with_input(
        &self,
        command: Command,
        session: &Session,
        input: &[u8],
    ) -> Result<(String, Exit)> {
        let mut output = String::new();
        let on_line = &mut |stream: Stream, line: &str| {
            if stream == Stream::Out {
                output.push_str(line);
                output.push('\n');
            }
        };
        let exit = self.run(command, session, input, on_line, &mut |_| {})?;
        Ok((output, exit))
    }

    /// Runs a command, passes each line to `on_line`, and calls `on_tick` with its process ID once in every interval. Only its
    /// I/O counts as progress: a program may print the same progress every second.
    pub(crate) fn run(
        &self,
        mut command: Command,
        session: &Session,
        input: &[u8],
        on_line: &mut dyn FnMut(Stream, &str),
        on_tick: &mut dyn FnMut(u32),
    ) -> Result<Exit> {
        session.check_cancel()?;
        command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.not_found(&error))?;
        if let Some(mut pipe) = child.stdin.take() {
            let _ = pipe.write_all(input);
        }
        let lines = spawn_readers(&mut child);
        let mut tail = Tail::default();
        let mut interrupt = Interrupt::default();
        let mut next = Instant::now() + session.interval;
        let mut io = ProcessIo::of_process(child.id());
        loop {
            match lines.recv_timeout(POLL_INTERVAL) {
                Ok((stream, line)) => {
                    io.ignore(line.len() + 1);
                    if stream == Stream::Err {
                        tail.add((self.strip_progress)(&line));
                    }
                    on_line(stream, &line);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if session.cancel.is_cancelled() {
                interrupt.signal(&child);
            }
            if Instant::now() >= next {
                next = Instant::now() + session.interval;
                on_tick(child.id());
                if let Some(bytes) = io.take_progress() {
                    session.task.process_moved(bytes);
                }
            }
        }
        let status = child.wait().map_err(|error| MoverError::local(format!("wait for {}", self.name), &error))?;
        session.check_cancel()?;
        Ok(Exit { status, stderr_tail: tail.into_text() })
    }

    fn not_found(&self, error: &std::io::Error) -> MoverError {
        MoverError::ProgramNotFound { program: self.name.into(), cause: error.to_string() }
    }

    pub(crate) fn error(&self, exit: &Exit) -> MoverError {
        let message = truncate_front(&without_stack(&exit.stderr_tail));
        MoverError::ProgramFailed { program: self.name.into(), status: describe_status(exit.status), message }
    }
}

/// The maximum delay before a cancel is handled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Finds a program in `PATH` or at a path.
fn look_up(program: &Path) -> std::result::Result<PathBuf, String> {
    if program.components().count() > 1 {
        return if program.is_file() {
            Ok(program.into())
        } else {
            Err(format!("{} does not exist", program.display()))
        };
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::split_paths(&search).map(|folder| folder.join(program)).find(|path| path.is_file());
    path.ok_or_else(|| format!("{} not found in PATH", program.display()))
}

/// Starts the program through [`crate::guard`], which sets its death signal and its writable paths.
fn guarded(session: &Session, program: &Path) -> Command {
    let Some((shim, arguments)) = session.guard.split_first() else { return Command::new(program) };
    let mut command = Command::new(shim);
    command.args(arguments).arg("--guard").arg(std::process::id().to_string());
    for path in &session.writable_paths {
        command.arg("--writes").arg(path);
    }
    command.arg("--").arg(program);
    command
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Operation, Stall, VirtualClock};
    use plimsoll_testkit::wait::until_blocking;

    use super::*;
    use crate::job::{Job, MoverKind, Repository, Work};
    use crate::{Cancel, RepositoryLocation, Secret};

    /// The stall of a command, measured with a fast virtual clock.
    fn stall_of(script: &str) -> Option<Stall> {
        let (clock, cancel) = (VirtualClock::new(), Cancel::default());
        let operation = Operation::new("transfer", clock.clock());
        let repository =
            Repository { location: RepositoryLocation::directory("/nowhere", "r"), password: Secret::new("p") };
        let mut job = Job::new("transfer", MoverKind::Restic, repository, Work::Locks);
        job.interval = 50;
        let session = Session::new(&job, operation.root(), cancel.clone(), Vec::new()).expect("a session");
        let program =
            Program { name: "bash", path: "/bin/bash".into(), version: Version(1, 0, 0), strip_progress: |line| line };
        std::thread::scope(|scope| {
            let command = program.command(&session, ["-c", script]);
            let running = scope.spawn(|| program.capture(command, &session));
            let stall = until_blocking("a stall", Duration::from_secs(5), || {
                clock.advance(Duration::from_secs(1));
                operation.snapshot().stall
            });
            cancel.cancel();
            let ended = running.join().expect("no panic");
            assert!(matches!(ended, Err(MoverError::Cancelled)), "{ended:?}");
            stall.ok()
        })
    }

    #[test]
    fn a_command_that_hangs_is_a_stall() {
        assert!(stall_of("exec sleep 1000").is_some());
    }

    /// A command that writes a megabyte a second to `to`. It waits without a child process, whose reads would count as its own.
    fn writing(to: &str) -> String {
        format!("exec 3<> <(:); line=$(printf '%16000s' x); while :; do echo \"$line\" {to}; read -t 0.01 -u 3; done")
    }

    #[test]
    fn a_command_that_only_prints_is_a_stall() {
        assert!(stall_of(&writing("")).is_some());
        assert!(stall_of(&writing(">&2")).is_some());
    }

    #[test]
    fn a_command_that_moves_data_is_not_a_stall() {
        assert!(stall_of(&writing("> /dev/null")).is_none());
    }

    #[test]
    fn a_missing_program_is_reported() {
        assert!(look_up(Path::new("no-such-program-anywhere")).is_err_and(|cause| cause.contains("PATH")));
        assert!(look_up(Path::new("/no/such/program")).is_err());
        assert!(look_up(Path::new("sh")).is_ok());
    }
}
