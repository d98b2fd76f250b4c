//! The compared programs and their commands.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;
use crate::remote_server::{ACCESS, SECRET};

const PASSWORD: &str = "benchmark";

/// One measured process.
#[derive(Clone, Copy, Default)]
pub struct Sample {
    pub wall: f64,
    pub cpu: f64,
    pub memory: f64,
    /// The processor time of the S3 server and the proxy.
    pub server_seconds: f64,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    /// The first backup.
    First,
    /// A second backup without changes.
    Again,
    /// A backup after a tenth changed.
    Changed,
    /// A restore to an empty directory.
    Restore,
    /// A check of all data.
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

/// The store of the repositories.
#[derive(Clone)]
pub enum RepositoryStore {
    Directory,
    /// An S3 server: its address, its process, and the directory in which each program has a bucket.
    S3 {
        url: String,
        process: u32,
        folder: PathBuf,
    },
}

impl RepositoryStore {
    /// The processor seconds of the S3 server and of the proxy, which is in this process.
    fn server_seconds(&self) -> f64 {
        match self {
            Self::Directory => 0.0,
            Self::S3 { process, .. } => processor_seconds(&process.to_string()) + processor_seconds("self"),
        }
    }
}

fn processor_seconds(process: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // After the name, which may contain any character: user and system time are the 12th and 13th.
    let numbers = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
    // Linux reports ticks of 10 ms.
    numbers.filter_map(|number| number.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// One of the programs.
pub struct Peer {
    pub name: &'static str,
    pub program: PathBuf,
    pub work: PathBuf,
    pub store: RepositoryStore,
}

impl Peer {
    fn folder(&self, what: &str) -> PathBuf {
        self.work.join(format!("{}-{what}", self.name))
    }

    fn repository(&self) -> OsString {
        match &self.store {
            RepositoryStore::Directory => self.folder("repository").into(),
            RepositoryStore::S3 { url, .. } => format!("s3:{url}/{}", self.name).into(),
        }
    }

    /// The local directory of the repository's files.
    fn files(&self) -> PathBuf {
        match &self.store {
            RepositoryStore::Directory => self.folder("repository"),
            RepositoryStore::S3 { folder, .. } => folder.join(self.name),
        }
    }

    /// Removes the files of an earlier round.
    pub fn clean(&self) {
        for folder in [self.files(), self.folder("restored"), self.folder("cache")] {
            let _ = fs::remove_dir_all(folder);
        }
    }

    /// Initializes a repository.
    pub fn prepare(&self) -> Result<(), Failure> {
        self.clean();
        fs::create_dir_all(self.files())?;
        let arguments = match (self.name, &self.store) {
            ("plimsoll", _) => self.ours("init", &[]),
            ("restic", _) => words(&["init", "--quiet"], &[]),
            (_, RepositoryStore::Directory) => {
                words(&["repository", "create", "filesystem", "--path"], &[self.repository()])
            }
            (_, RepositoryStore::S3 { url, .. }) => {
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

    /// The directories that a step reads, itself or through the local S3 server.
    pub fn reads(&self, step: Step, data: &Path) -> Vec<PathBuf> {
        let source = (!matches!(step, Step::Restore | Step::Check)).then(|| data.to_owned());
        [self.files()].into_iter().chain(source).collect()
    }

    /// Runs one step under `time`, which reports the resources of the process.
    pub fn measure(&self, step: Step, data: &Path) -> Result<Sample, Failure> {
        let mut arguments: Vec<OsString> =
            vec!["-f".into(), "measured %e %U %S %M".into(), self.program.clone().into()];
        arguments.extend(self.arguments(step, data));
        let before = self.store.server_seconds();
        let output = self.command(Path::new("/usr/bin/time"), &arguments).stderr(Stdio::piped()).output()?;
        let server_seconds = self.store.server_seconds() - before;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(format!("{} {}: {text}", self.name, step.name()).into());
        }
        let line = text.lines().rev().find_map(|line| line.strip_prefix("measured ")).ok_or("time said nothing")?;
        let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        let [wall, user, system, memory] = numbers[..] else { return Err("time said something else".into()) };
        Ok(Sample { wall, cpu: user + system, memory: memory * 1024.0 / 1e6, server_seconds })
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
