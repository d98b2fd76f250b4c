//! Running somebody else's program: its output line by line, its end by its exit code, its life no longer than ours.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::interrupt::Stopping;
use crate::mover::Session;
use crate::traffic::Traffic;
use crate::version::Version;
use crate::{MoverError, Result};

/// Which of its outputs a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// A program and what it says about its version.
#[derive(Debug)]
pub(crate) struct Program {
    pub name: &'static str,
    pub path: PathBuf,
    pub version: Version,
    words: Words,
}

/// What of a line on a program's standard error is more than progress.
pub(crate) type Words = fn(&str) -> &str;

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Exit {
    pub status: ExitStatus,
    /// The end of what it wrote to its standard error, without progress.
    pub last_words: String,
}

impl Exit {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

/// Exit code or signal, in words.
pub(crate) fn how(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(9)) => "killed by signal 9, as for want of memory".into(),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended in an unknown way".into(),
    }
}

/// Variables of our own environment that a program may need and that hold no secret of ours.
const PASSED_ON: &[&str] = &[
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
/// How a pod's own identity is found, where the location brings no keys.
const IDENTITY: &[&str] = &[
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

/// Lines longer than this are cut: no program of ours writes one, but a listing may be one long line.
const LONGEST_LINE: usize = 256 << 20;
const LAST_WORDS: usize = 16 << 10;

impl Program {
    /// Finds a program and refuses one that is too old.
    pub(crate) fn find(name: &'static str, ask: &str, least: Version, words: Words, session: &Session) -> Result<Self> {
        let path = session.program.clone().unwrap_or_else(|| PathBuf::from(name));
        let path = look_up(&path).map_err(|cause| MoverError::MissingProgram { program: name.into(), cause })?;
        let unknown = Self { name, path, version: least, words };
        let (said, exit) = unknown.capture(unknown.command(session, [ask]), session)?;
        let version = Version::find(&said).ok_or_else(|| MoverError::Answer {
            program: name.into(),
            answer: format!("{} {}", cut(&said), cut(&exit.last_words)),
        })?;
        if version < least {
            let (version, least) = (version.to_string(), least.to_string());
            return Err(MoverError::ProgramTooOld { program: name.into(), version, least });
        }
        Ok(Self { version, ..unknown })
    }

    /// A command with a clean environment that dies when this thread does.
    pub(crate) fn command<I: AsRef<OsStr>>(
        &self,
        session: &Session,
        arguments: impl IntoIterator<Item = I>,
    ) -> Command {
        let mut command = guarded(session, &self.path);
        command.args(arguments).env_clear();
        let identity: &[&str] = if session.repository.place.credentials.is_none() { IDENTITY } else { &[] };
        for name in PASSED_ON.iter().chain(identity) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("HOME", session.private.path()).env("TMPDIR", session.scratch.path());
        command
    }

    /// Runs a command to its end and gives what it wrote to its standard output.
    pub(crate) fn capture(&self, command: Command, session: &Session) -> Result<(String, Exit)> {
        self.capture_fed(command, session, &[])
    }

    /// The same for a command that reads its standard input.
    pub(crate) fn capture_fed(&self, command: Command, session: &Session, input: &[u8]) -> Result<(String, Exit)> {
        let mut said = String::new();
        let listen = &mut |stream: Stream, line: &str| {
            if stream == Stream::Out {
                said.push_str(line);
                said.push('\n');
            }
        };
        let exit = self.run(command, session, input, listen, &mut |_| {})?;
        Ok((said, exit))
    }

    /// Runs a command, giving each line to `listen` and calling `tick` with its process once in an interval. Only what
    /// it moves is a sign of life: a program may print how far it is every second and never get any farther.
    pub(crate) fn run(
        &self,
        mut command: Command,
        session: &Session,
        input: &[u8],
        listen: &mut dyn FnMut(Stream, &str),
        tick: &mut dyn FnMut(u32),
    ) -> Result<Exit> {
        session.check_cancel()?;
        command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.missing(&error))?;
        if let Some(mut pipe) = child.stdin.take() {
            let _ = pipe.write_all(input);
        }
        let lines = lines_of(&mut child);
        let mut tail = Tail::default();
        let mut stopping = Stopping::default();
        let mut next = Instant::now() + session.interval;
        let mut traffic = Traffic::of_process(child.id());
        loop {
            match lines.recv_timeout(POLL) {
                Ok((stream, line)) => {
                    traffic.ignore(line.len() + 1);
                    if stream == Stream::Err {
                        tail.add((self.words)(&line));
                    }
                    listen(stream, &line);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if session.cancel.is_cancelled() {
                stopping.press(&child);
            }
            if Instant::now() >= next {
                next = Instant::now() + session.interval;
                tick(child.id());
                if traffic.has_moved() {
                    session.task.touch();
                }
            }
        }
        let status = child.wait().map_err(|error| MoverError::local(format!("wait for {}", self.name), &error))?;
        session.check_cancel()?;
        Ok(Exit { status, last_words: tail.0 })
    }

    fn missing(&self, error: &std::io::Error) -> MoverError {
        MoverError::MissingProgram { program: self.name.into(), cause: error.to_string() }
    }

    pub(crate) fn failed(&self, exit: &Exit) -> MoverError {
        let message = cut_front(&without_stack(&exit.last_words));
        MoverError::ProgramFailed { program: self.name.into(), how: how(exit.status), message }
    }
}

/// How long it may take until a cancel is seen.
const POLL: Duration = Duration::from_millis(50);

/// A program in `PATH`, or at a path.
fn look_up(program: &Path) -> std::result::Result<PathBuf, String> {
    if program.components().count() > 1 {
        return if program.is_file() { Ok(program.into()) } else { Err(format!("there is no {}", program.display())) };
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&search).map(|folder| folder.join(program)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{} is not in PATH", program.display()))
}

/// Starts the program by way of ourselves, so that before it begins it is told to die with us, and where it may write.
fn guarded(session: &Session, program: &Path) -> Command {
    let Some((shim, arguments)) = session.guard.split_first() else { return Command::new(program) };
    let mut command = Command::new(shim);
    command.args(arguments).arg("--guard").arg(std::process::id().to_string());
    for place in &session.writes {
        command.arg("--writes").arg(place);
    }
    command.arg("--").arg(program);
    command
}

fn lines_of(child: &mut Child) -> Receiver<(Stream, String)> {
    let (to, from) = sync_channel(1024);
    if let Some(out) = child.stdout.take() {
        read_lines(out, Stream::Out, to.clone());
    }
    if let Some(err) = child.stderr.take() {
        read_lines(err, Stream::Err, to);
    }
    from
}

fn read_lines(mut from: impl Read + Send + 'static, stream: Stream, to: SyncSender<(Stream, String)>) {
    std::thread::spawn(move || {
        let mut lines = Lines::default();
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            for line in lines.add(&buffer[..length]) {
                if to.send((stream, line)).is_err() {
                    return;
                }
            }
        }
        if let Some(rest) = lines.rest() {
            let _ = to.send((stream, rest));
        }
    });
}

/// Splits at line breaks and at carriage returns: kopia draws over its own lines.
#[derive(Debug, Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut whole = Vec::new();
        let mut pieces = bytes.split(|byte| matches!(byte, b'\n' | b'\r')).peekable();
        while let Some(piece) = pieces.next() {
            let room = LONGEST_LINE.saturating_sub(self.0.len()).min(piece.len());
            self.0.extend_from_slice(&piece[..room]);
            if pieces.peek().is_some() {
                whole.extend(self.rest());
            }
        }
        whole
    }

    fn rest(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.0);
        (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned())
    }
}

/// The end of a text.
#[derive(Debug, Default)]
struct Tail(String);

impl Tail {
    fn add(&mut self, line: &str) {
        if line.is_empty() {
            return;
        }
        self.0.push_str(line);
        self.0.push('\n');
        if self.0.len() > LAST_WORDS {
            let from = self.0.ceil_char_boundary(self.0.len() - LAST_WORDS / 2);
            self.0.drain(..from);
        }
    }
}

/// No message has a longer text of somebody else's in it.
const LONGEST_TEXT: usize = 400;

/// A text on one line and not too long, for messages.
pub(crate) fn cut(text: &str) -> String {
    let one_line = one_line(text);
    match one_line.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}…", &one_line[..end]),
        None => one_line,
    }
}

/// The same for last words: why a program ended is what it says at the very end.
fn cut_front(text: &str) -> String {
    let one_line = one_line(text);
    match one_line.char_indices().nth_back(LONGEST_TEXT) {
        Some((before, left_out)) => format!("…{}", &one_line[before + left_out.len_utf8()..]),
        None => one_line,
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Words without the stack that Go puts behind the cause: lines with a function, each followed by one with a place in
/// the source, which begins with a tab.
fn without_stack(words: &str) -> String {
    let lines: Vec<&str> = words.lines().collect();
    let is_place = |line: Option<&&str>| line.is_some_and(|line| line.starts_with('\t'));
    let is_kept = |at: usize| !is_place(lines.get(at)) && !is_place(lines.get(at + 1));
    (0..lines.len()).filter(|at| is_kept(*at)).map(|at| lines[at]).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Operation, Stall, VirtualClock};
    use plimsoll_testkit::wait::until_blocking;

    use super::*;
    use crate::job::{Job, Kind, Repository, Work};
    use crate::{Cancel, Place, Secret};

    /// The stall of a command that does this, as seen by somebody whose seconds are short; nothing if there is none.
    fn stall_of(script: &str) -> Option<Stall> {
        let (clock, cancel) = (VirtualClock::new(), Cancel::default());
        let operation = Operation::new("transfer", clock.clock());
        let repository = Repository { place: Place::directory("/nowhere", "r"), password: Secret::new("p") };
        let mut job = Job::new("transfer", Kind::Restic, repository, Work::Locks);
        job.interval = 50;
        let session = Session::new(&job, operation.root(), cancel.clone(), Vec::new()).expect("a session");
        let program = Program { name: "bash", path: "/bin/bash".into(), version: Version(1, 0, 0), words: |line| line };
        std::thread::scope(|scope| {
            let command = program.command(&session, ["-c", script]);
            let running = scope.spawn(|| program.capture(command, &session));
            let stall = until_blocking("a stall", Duration::from_secs(5), || {
                clock.advance(Duration::from_secs(1));
                operation.snapshot().stall
            });
            cancel.cancel();
            let ended = running.join().expect("it does not panic");
            assert!(matches!(ended, Err(MoverError::Cancelled)), "{ended:?}");
            stall.ok()
        })
    }

    #[test]
    fn a_command_that_hangs_is_a_stall() {
        assert!(stall_of("exec sleep 1000").is_some());
    }

    /// A command that writes a megabyte a second to this place. It waits without starting anybody, whose reading would count as its own.
    fn writing(to: &str) -> String {
        format!("exec 3<> <(:); line=$(printf '%16000s' x); while :; do echo \"$line\" {to}; read -t 0.01 -u 3; done")
    }

    #[test]
    fn a_command_that_only_talks_is_a_stall_however_much_it_says() {
        assert!(stall_of(&writing("")).is_some());
        assert!(stall_of(&writing(">&2")).is_some());
    }

    #[test]
    fn a_command_that_moves_data_is_no_stall() {
        assert!(stall_of(&writing("> /dev/null")).is_none());
    }

    #[test]
    fn lines_end_at_line_breaks_and_carriage_returns_wherever_the_pipe_cuts_them() {
        let mut lines = Lines::default();
        assert_eq!(lines.add(b"\r / 1 hash"), Vec::<String>::new());
        assert_eq!(lines.add(b"ing\r - 2\nlast"), [" / 1 hashing", " - 2"]);
        assert_eq!(lines.rest().as_deref(), Some("last"));
        assert_eq!(lines.rest(), None);
    }

    #[test]
    fn the_end_of_long_last_words_is_kept_because_it_says_why() {
        let words = "it went on and on\n".repeat(100) + "and then the wheel fell off";
        let kept = cut_front(&words);
        assert!(kept.starts_with('…') && kept.ends_with("and then the wheel fell off"), "{kept}");
        assert_eq!(kept.chars().count(), LONGEST_TEXT + 1);
        assert_eq!(cut_front(" one\n two "), "one two");
    }

    #[test]
    fn a_stack_of_functions_hides_no_cause() {
        let words = "Access Denied.\nclient.PutObject\nmain.Save\n\t/build/s3.go:307\nruntime.goexit\n\t/go/asm.s:1594\n\
                     unable to create lock in backend\n";
        assert_eq!(without_stack(words), "Access Denied.\nclient.PutObject\nunable to create lock in backend");
    }

    #[test]
    fn a_program_that_is_nowhere_is_missing_by_name() {
        assert!(look_up(Path::new("no-such-program-anywhere")).is_err_and(|cause| cause.contains("PATH")));
        assert!(look_up(Path::new("/no/such/program")).is_err());
        assert!(look_up(Path::new("sh")).is_ok());
    }
}
