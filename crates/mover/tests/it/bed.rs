//! A place to work in: a volume, a repository in a directory or on an S3 server, and a mover.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_mover::{
    Backup, BackupOutcome, Job, Kind, Launch, LockInfo, MoverError, Outcome, Place, Repository, Restore,
    RestoreOutcome, Secret, SnapshotInfo, Work,
};
use plimsoll_testkit::Unavailable;
use plimsoll_testkit::cache;
use plimsoll_testkit::peers::s3::{ACCESS_KEY, S3Program, S3Server, SECRET_KEY};
use tokio::runtime::Runtime;

use crate::watched::{self, Watched};

pub const PASSWORD: &str = "correct horse";

/// Which mover, with which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    BuiltIn,
    OldRestic,
    Restic,
    Kopia,
}

impl Which {
    pub fn kind(self) -> Kind {
        match self {
            Self::BuiltIn => Kind::BuiltIn,
            Self::OldRestic | Self::Restic => Kind::Restic,
            Self::Kopia => Kind::Kopia,
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

/// Where the repository is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    Directory,
    S3,
}

pub struct Bed {
    pub runtime: Runtime,
    pub which: Which,
    pub program: Option<PathBuf>,
    pub place: Place,
    /// What runs the mover: the tests of rights put another command in front.
    pub launch: Launch,
    pub server: Option<S3Server>,
    pub stored: PathBuf,
    folder: tempfile::TempDir,
}

impl Bed {
    /// Without a repository.
    pub fn bare(which: Which, at: Where) -> Result<Self, Unavailable> {
        let program = which.program()?;
        let folder = tempfile::tempdir().unwrap();
        for name in ["source", "target", "stored"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let stored = folder.path().join("stored");
        let directory =
            Place::directory(stored.display().to_string(), format!("{}/shop", which.kind().uploader_type()));
        let (place, stored, server) = match at {
            Where::Directory => (directory, stored, None),
            Where::S3 => on_s3(&directory.prefix)?,
        };
        let launch = Launch { program: env!("CARGO_BIN_EXE_plimsoll-mover").into(), arguments: Vec::new() };
        Ok(Self { runtime: Runtime::new().unwrap(), which, program, place, launch, server, stored, folder })
    }

    /// With a repository.
    pub fn new(which: Which, at: Where) -> Result<Self, Unavailable> {
        let bed = Self::bare(which, at)?;
        let ensured = bed.run(Work::Ensure).unwrap();
        assert!(matches!(ensured, Outcome::Ensured(ensured) if ensured.created));
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
        let repository = Repository { place: self.place.clone(), password: Secret::new(PASSWORD) };
        let mut job = Job::new("transfer", self.which.kind(), repository, work);
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

    /// Runs a job to its end, with every sample of its progress checked.
    pub fn run(&self, work: Work) -> Result<Outcome, MoverError> {
        self.run_job(&self.job(work))
    }

    pub fn run_job(&self, job: &Job) -> Result<Outcome, MoverError> {
        self.watch(job, |_| {})
    }

    /// The same, with a look at every sample.
    pub fn watch(&self, job: &Job, look: impl FnMut(&Watched)) -> Result<Outcome, MoverError> {
        self.runtime.block_on(watched::run(&self.launch, job, look))
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

    /// Bytes that the repository takes.
    pub fn stored_bytes(&self) -> u64 {
        size_of(&self.stored)
    }

    /// The repository passes its own program's check, all data read.
    pub fn assert_sound(&self) {
        let Some(program) = self.program.clone().or_else(|| Which::Restic.program().ok().flatten()) else { return };
        let mut command = Command::new(program);
        let prefix = &self.place.prefix;
        if self.which.kind() == Kind::Kopia {
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

    /// A kopia of the test's own, with a configuration of its own.
    pub fn connect_kopia(&self, command: &mut Command) {
        let config = self.path("kopia.config");
        let prefix = &self.place.prefix;
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

fn on_s3(prefix: &str) -> Result<(Place, PathBuf, Option<S3Server>), Unavailable> {
    cache::program("versitygw")?;
    let server = S3Server::start(S3Program::Versity, "127.0.0.1").unwrap();
    let stored = server.create_bucket("bucket").unwrap();
    let config = [("s3Url", server.endpoint()), ("s3ForcePathStyle", "true"), ("region", "us-east-1")];
    let credentials = format!("[default]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key={SECRET_KEY}\n");
    let place = Place {
        provider: "velero.io/aws".into(),
        bucket: "bucket".into(),
        prefix: prefix.to_owned(),
        config: config.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        credentials: Some(Secret::new(credentials)),
        ca_cert: None,
    };
    Ok((place, stored, Some(server)))
}

fn size_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { size_of(&path) } else { path.metadata().unwrap().len() }).sum()
}
