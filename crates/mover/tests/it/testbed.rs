//! The test fixture: a volume, a repository in a directory or on an S3 server, and a mover.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_mover::{
    Backup, BackupOutcome, Job, LockInfo, MoverCommand, MoverError, MoverKind, Outcome, Repository, RepositoryLocation,
    Restore, RestoreOutcome, Secret, SnapshotInfo, Work,
};
use plimsoll_testkit::Unavailable;
use plimsoll_testkit::cache;
use plimsoll_testkit::peers::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use tokio::runtime::Runtime;

use crate::progress_sample::{self, ProgressSample};

pub const PASSWORD: &str = "correct horse";

/// A mover and the version of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestMover {
    BuiltIn,
    OldRestic,
    Restic,
    Kopia,
}

impl TestMover {
    pub fn kind(self) -> MoverKind {
        match self {
            Self::BuiltIn => MoverKind::BuiltIn,
            Self::OldRestic | Self::Restic => MoverKind::Restic,
            Self::Kopia => MoverKind::Kopia,
        }
    }

    pub fn program(self) -> Result<Option<PathBuf>, Unavailable> {
        match self {
            Self::BuiltIn => Ok(None),
            Self::OldRestic => cache::program("restic-0.14").map(Some),
            Self::Restic => cache::program("restic").map(Some),
            Self::Kopia => cache::program("kopia").map(Some),
        }
    }
}

/// The store of the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    Directory,
    S3,
}

pub struct Testbed {
    pub runtime: Runtime,
    pub mover_kind: TestMover,
    pub program: Option<PathBuf>,
    pub location: RepositoryLocation,
    /// The mover command. Some tests add a prefix.
    pub command: MoverCommand,
    pub server: Option<S3Server>,
    pub stored: PathBuf,
    folder: tempfile::TempDir,
}

impl Testbed {
    /// Creates a fixture without a repository.
    pub fn without_repository(mover_kind: TestMover, store: StoreKind) -> Result<Self, Unavailable> {
        let program = mover_kind.program()?;
        let folder = tempfile::tempdir().unwrap();
        for name in ["source", "target", "stored"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let stored = folder.path().join("stored");
        let directory = RepositoryLocation::directory(
            stored.display().to_string(),
            format!("{}/shop", mover_kind.kind().uploader_type()),
        );
        let (location, stored, server) = match store {
            StoreKind::Directory => (directory, stored, None),
            StoreKind::S3 => on_s3(&directory.prefix)?,
        };
        let command = MoverCommand { program: env!("CARGO_BIN_EXE_plimsoll-mover").into(), arguments: Vec::new() };
        Ok(Self { runtime: Runtime::new().unwrap(), mover_kind, program, location, command, server, stored, folder })
    }

    /// Creates a fixture with a repository. The built-in mover initializes it for restic too: deriving the key of a repository
    /// that restic has initialized takes several times as long, at each start of a program.
    pub fn new(mover_kind: TestMover, store: StoreKind) -> Result<Self, Unavailable> {
        let bed = Self::without_repository(mover_kind, store)?;
        let mut job = bed.job(Work::Ensure);
        if job.kind == MoverKind::Restic {
            (job.kind, job.program) = (MoverKind::BuiltIn, None);
        }
        let outcome = bed.run_job(&job).unwrap();
        assert!(matches!(outcome, Outcome::Ensure(ensured) if ensured.created));
        Ok(bed)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn source(&self) -> PathBuf {
        self.path("source")
    }

    pub fn target(&self) -> PathBuf {
        self.path("target")
    }

    pub fn fresh_target(&self) -> PathBuf {
        let target = self.target();
        std::fs::remove_dir_all(&target).unwrap();
        std::fs::create_dir(&target).unwrap();
        target
    }

    pub fn job(&self, work: Work) -> Job {
        let repository = Repository { location: self.location.clone(), password: Secret::new(PASSWORD) };
        let mut job = Job::new("transfer", self.mover_kind.kind(), repository, work);
        job.program.clone_from(&self.program);
        job.interval = 50;
        job
    }

    pub fn backup_work(&self) -> Work {
        let tags = BTreeMap::from([("pvc-uid".to_owned(), "1234".to_owned()), ("backup".into(), "nightly".into())]);
        Work::Backup(Backup::new(self.source(), "shop/db-0/data", tags))
    }

    pub fn restore_work(&self, snapshot: &str) -> Work {
        Work::Restore(Restore::new(snapshot, self.target()))
    }

    /// Runs a job and checks every sample of its progress.
    pub fn run(&self, work: Work) -> Result<Outcome, MoverError> {
        self.run_job(&self.job(work))
    }

    pub fn run_job(&self, job: &Job) -> Result<Outcome, MoverError> {
        self.watch(job, |_| {})
    }

    /// Runs a job and calls `on_sample` with every sample.
    pub fn watch(&self, job: &Job, on_sample: impl FnMut(&ProgressSample)) -> Result<Outcome, MoverError> {
        self.runtime.block_on(progress_sample::run(&self.command, job, on_sample))
    }

    pub fn back_up(&self) -> BackupOutcome {
        self.try_back_up().unwrap()
    }

    pub fn try_back_up(&self) -> Result<BackupOutcome, MoverError> {
        match self.run(self.backup_work())? {
            Outcome::Backup(outcome) => Ok(outcome),
            other => panic!("{other:?}"),
        }
    }

    pub fn restore(&self, snapshot: &str) -> RestoreOutcome {
        self.try_restore(snapshot).unwrap()
    }

    pub fn try_restore(&self, snapshot: &str) -> Result<RestoreOutcome, MoverError> {
        match self.run(self.restore_work(snapshot))? {
            Outcome::Restore(outcome) => Ok(outcome),
            other => panic!("{other:?}"),
        }
    }

    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        match self.run(Work::Snapshots).unwrap() {
            Outcome::Snapshots(snapshots) => snapshots,
            other => panic!("{other:?}"),
        }
    }

    pub fn locks(&self) -> Vec<LockInfo> {
        match self.run(Work::Locks).unwrap() {
            Outcome::Locks(locks) => locks,
            other => panic!("{other:?}"),
        }
    }

    /// The size of the repository.
    pub fn stored_bytes(&self) -> u64 {
        size_of(&self.stored)
    }

    /// Asserts that the repository passes the check of its program, with all data.
    pub fn assert_intact(&self) {
        let Some(program) = self.program.clone().or_else(|| TestMover::Restic.program().ok().flatten()) else { return };
        let mut command = Command::new(program);
        let prefix = &self.location.prefix;
        if self.mover_kind.kind() == MoverKind::Kopia {
            self.connect_kopia(&mut command);
            command.args(["snapshot", "verify", "--verify-files-percent=100"]);
        } else {
            let repository = match &self.server {
                None => self.stored.join(prefix).display().to_string(),
                Some(server) => format!("s3:{}/bucket/{prefix}", server.endpoint()),
            };
            command.args(["--no-cache", "--no-lock", "--repo", &repository, "check", "--read-data"]);
            command.env("RESTIC_PASSWORD", PASSWORD);
            command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Connects the test's kopia with a configuration of its own.
    pub fn connect_kopia(&self, command: &mut Command) {
        let config = self.path("kopia.config");
        let prefix = &self.location.prefix;
        command.args(["--disable-file-logging", "--no-use-keyring", "--config-file"]).arg(&config);
        command.env("KOPIA_PASSWORD", PASSWORD).env("KOPIA_CHECK_FOR_UPDATES", "false");
        command.env("XDG_CACHE_HOME", self.folder.path());
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        if config.exists() {
            return;
        }
        let mut connect = Command::new(command.get_program());
        connect.args(command.get_args()).args(["repository", "connect"]);
        connect.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        match &self.server {
            None => connect.args(["filesystem", "--path"]).arg(self.stored.join(prefix)),
            Some(server) => connect.args(["s3", "--bucket=bucket", "--disable-tls"]).args([
                format!("--prefix={prefix}/"),
                format!("--endpoint={}", server.endpoint().trim_start_matches("http://")),
            ]),
        };
        let output = connect.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn on_s3(prefix: &str) -> Result<(RepositoryLocation, PathBuf, Option<S3Server>), Unavailable> {
    cache::program("versitygw")?;
    let server = S3Server::start("127.0.0.1").unwrap();
    let stored = server.create_bucket("bucket").unwrap();
    let config = [("s3Url", server.endpoint()), ("s3ForcePathStyle", "true"), ("region", "us-east-1")];
    let credentials = format!("[default]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key={SECRET_KEY}\n");
    let location = RepositoryLocation {
        provider: "velero.io/aws".into(),
        bucket: "bucket".into(),
        prefix: prefix.to_owned(),
        config: config.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        credentials: Some(Secret::new(credentials)),
        ca_cert: None,
    };
    Ok((location, stored, Some(server)))
}

fn size_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { size_of(&path) } else { path.metadata().unwrap().len() }).sum()
}
