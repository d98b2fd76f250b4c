//! The programs that take turns, and what each is told to do.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;
use crate::distance::{ACCESS, SECRET};

const PASSWORD: &str = "benchmark";

/// One measured process.
#[derive(Clone, Copy, Default)]
pub struct Sample {
    pub wall: f64,
    pub cpu: f64,
    pub memory: f64,
    /// What the S3 server and the line to it took of the same processors meanwhile.
    pub far_end: f64,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    /// The first backup.
    First,
    /// The same again, nothing changed.
    Again,
    /// A tenth changed.
    Changed,
    /// To an empty directory.
    Restore,
    /// Reading and verifying everything.
    Check,
}

impl Step {
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Again => "unchanged",
            Self::Changed => "10 % new",
            Self::Restore => "restore",
            Self::Check => "check",
        }
    }
}

/// Where repositories are.
#[derive(Clone)]
pub enum Place {
    Directory,
    /// An S3 server: its address, its process, and the directory in which each program has a bucket.
    S3 {
        url: String,
        process: u32,
        folder: PathBuf,
    },
}

impl Place {
    /// Seconds of processors that the S3 server and the line to it, which is in this process, have had so far.
    fn far_end(&self) -> f64 {
        match self {
            Self::Directory => 0.0,
            Self::S3 { process, .. } => processor_seconds(&process.to_string()) + processor_seconds("self"),
        }
    }
}

fn processor_seconds(process: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything: user and system time are the 12th and 13th.
    let numbers = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
    // Linux counts a hundred to a second for whoever asks.
    numbers.filter_map(|number| number.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// One of the programs.
pub struct Peer {
    pub name: &'static str,
    pub program: PathBuf,
    pub work: PathBuf,
    pub place: Place,
}

impl Peer {
    fn folder(&self, what: &str) -> PathBuf {
        self.work.join(format!("{}-{what}", self.name))
    }

    fn repository(&self) -> OsString {
        match &self.place {
            Place::Directory => self.folder("repository").into(),
            Place::S3 { url, .. } => format!("s3:{url}/{}", self.name).into(),
        }
    }

    /// Where the repository's files are, on this machine in either case.
    fn files(&self) -> PathBuf {
        match &self.place {
            Place::Directory => self.folder("repository"),
            Place::S3 { folder, .. } => folder.join(self.name),
        }
    }

    /// Removes what an earlier round left.
    pub fn clean(&self) {
        for folder in [self.files(), self.folder("restored"), self.folder("cache")] {
            let _ = fs::remove_dir_all(folder);
        }
    }

    /// Makes an empty repository.
    pub fn prepare(&self) -> Result<(), Failure> {
        self.clean();
        fs::create_dir_all(self.files())?;
        let arguments = match (self.name, &self.place) {
            ("plimsoll", _) => self.ours("init", &[]),
            ("restic", _) => words(&["init", "--quiet"], &[]),
            (_, Place::Directory) => words(&["repository", "create", "filesystem", "--path"], &[self.repository()]),
            (_, Place::S3 { url, .. }) => {
                let endpoint = url.trim_start_matches("http://").to_owned();
                let keys = ["--access-key", ACCESS, "--secret-access-key", SECRET];
                let rest: Vec<_> =
                    keys.iter().map(OsString::from).chain([format!("--endpoint={endpoint}").into()]).collect();
                words(&["repository", "create", "s3", "--disable-tls", "--bucket", self.name], &rest)
            }
        };
        let output = self.command(&self.program, &arguments).stderr(Stdio::piped()).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{} init: {}", self.name, String::from_utf8_lossy(&output.stderr)).into())
    }

    fn arguments(&self, step: Step, data: &Path) -> Vec<OsString> {
        let (data, target) = (data.as_os_str().to_owned(), self.folder("restored").into_os_string());
        match (self.name, step) {
            ("plimsoll", Step::Restore) => self.ours("restore", &["latest".into(), target]),
            ("plimsoll", Step::Check) => self.ours("check", &[]),
            ("plimsoll", _) => self.ours("backup", &[data]),
            ("restic", Step::Restore) => words(&["restore", "--quiet", "latest", "--target"], &[target]),
            ("restic", Step::Check) => words(&["check", "--quiet", "--read-data"], &[]),
            ("restic", _) => words(&["backup", "--quiet"], &[data]),
            (_, Step::Restore) => words(&["snapshot", "restore", "--no-progress"], &[data, target]),
            (_, Step::Check) => words(&["snapshot", "verify", "--verify-files-percent=100", "--no-progress"], &[]),
            _ => words(&["snapshot", "create", "--no-progress"], &[data]),
        }
    }

    fn ours(&self, command: &str, rest: &[OsString]) -> Vec<OsString> {
        let mut arguments = vec![command.into(), self.repository(), PASSWORD.into()];
        arguments.extend_from_slice(rest);
        arguments
    }

    fn command(&self, program: &Path, arguments: &[OsString]) -> Command {
        let cache = self.folder("cache");
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("TZ", "UTC")
            .env("AWS_ACCESS_KEY_ID", ACCESS)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("PLIMSOLL_CACHE_DIR", &cache)
            .env("RESTIC_PASSWORD", PASSWORD)
            .env("RESTIC_REPOSITORY", self.repository())
            .env("RESTIC_CACHE_DIR", &cache)
            .env("KOPIA_PASSWORD", PASSWORD)
            .env("KOPIA_CONFIG_PATH", self.work.join("kopia.config"))
            .env("KOPIA_CACHE_DIRECTORY", &cache)
            .env("KOPIA_CHECK_FOR_UPDATES", "false")
            .stdout(Stdio::null());
        command
    }

    /// What a step reads, itself or by the S3 server, which is on this machine, too.
    pub fn reads(&self, step: Step, data: &Path) -> Vec<PathBuf> {
        let source = (!matches!(step, Step::Restore | Step::Check)).then(|| data.to_owned());
        [self.files()].into_iter().chain(source).collect()
    }

    /// Runs one step under `time`, which knows what a process used.
    pub fn measure(&self, step: Step, data: &Path) -> Result<Sample, Failure> {
        let mut arguments: Vec<OsString> =
            vec!["-f".into(), "measured %e %U %S %M".into(), self.program.clone().into()];
        arguments.extend(self.arguments(step, data));
        let before = self.place.far_end();
        let output = self.command(Path::new("/usr/bin/time"), &arguments).stderr(Stdio::piped()).output()?;
        let far_end = self.place.far_end() - before;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(format!("{} {}: {text}", self.name, step.name()).into());
        }
        let line = text.lines().rev().find_map(|line| line.strip_prefix("measured ")).ok_or("time said nothing")?;
        let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        let [wall, user, system, memory] = numbers[..] else { return Err("time said something else".into()) };
        Ok(Sample { wall, cpu: user + system, memory: memory * 1024.0 / 1e6, far_end })
    }
}

fn words(words: &[&str], rest: &[OsString]) -> Vec<OsString> {
    words.iter().map(OsString::from).chain(rest.iter().cloned()).collect()
}

/// A program installed for the tests, or in the path.
pub fn find(name: &str) -> Option<PathBuf> {
    let installed = std::env::var_os("PLIMSOLL_CACHE")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/plimsoll")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        installed.map(|cache| cache.join("bin")).into_iter().chain(std::env::split_paths(&path).collect::<Vec<_>>());
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}
