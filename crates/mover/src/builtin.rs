//! The built-in mover: works on restic repositories without an external program.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_progress::{Total, Unit};
use plimsoll_repository::backup::{BackupOptions, Parent, Target};
use plimsoll_repository::format::snapshot::Snapshot;
use plimsoll_repository::restore::{Overwrite, RestoreOptions};
use plimsoll_repository::{Id, Lock, LockKind, OpenOptions, ReadData, RepositoryError, password_in_file};
use plimsoll_store::Store;
use tokio::runtime::Runtime;

use crate::builtin_maintenance::maintain;
use crate::error::is_full;
use crate::job::{Backup, HOST, Maintenance, MoverKind, Repository, Restore, VOLUME_TAG, Verify};
use crate::lifecycle::{own_pod_uid, password_warnings};
use crate::mover::{Fidelity, Mover, Session, require_directory};
use crate::outcome::{
    BackupOutcome, Damage, EnsureOutcome, LockInfo, MaintenanceOutcome, Problems, RestoreOutcome, SnapshotInfo,
    VerifyOutcome,
};
use crate::probe::Probe;
use crate::restic::{format_tags, parse_tags, repository, require_id};
use crate::volume_root::{self, VolumeRoot};
use crate::{MoverError, Result, volume_scan};

/// The mover without an external program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuiltIn;

/// The format version of new repositories, and the only one that the engine writes.
const WRITABLE_VERSION: u32 = 2;

/// The engine with an open repository and its runtime.
struct Engine {
    name: String,
    repository: Arc<plimsoll_repository::Repository>,
    _runtime: Runtime,
}

/// The readable snapshots, and a description of the damaged ones.
struct ReadableSnapshots {
    snapshots: Vec<(Id, Snapshot)>,
    damage: Option<String>,
}

/// How a session's repository is opened.
#[derive(Clone)]
struct EngineSettings {
    repository: Repository,
    options: OpenOptions,
}

impl EngineSettings {
    fn of(session: &Session) -> Self {
        let cache = session.cache.as_ref().map(|directory| directory.join("built-in"));
        let (cancel, memory, pod) = (session.cancel.clone(), session.memory, own_pod_uid());
        let options = OpenOptions { cache, cancel, memory, pod, ..OpenOptions::default() };
        Self { repository: session.repository.clone(), options }
    }
}

impl Engine {
    fn open(session: &Session) -> Result<Self> {
        Self::open_with(&EngineSettings::of(session))
    }

    /// Opens the repository for a transfer. Meanwhile a probe reports an unreachable or missing repository at once; the engine would
    /// retry for longer.
    fn open_for_transfer(session: &Session, check: impl FnOnce(&Probe, &str) -> Result<()>) -> Result<Self> {
        let mut settings = EngineSettings::of(session);
        settings.options.prefetch = true;
        let (done, opened) = std::sync::mpsc::sync_channel(1);
        // Not a scoped thread: if the probe fails, the engine may go on retrying until this process ends.
        std::thread::spawn(move || done.send(Self::open_with(&settings)));
        let (probe, name) = (Probe::open(&session.repository.location)?, session.name());
        require_config(&probe, &name)?;
        check(&probe, &name)?;
        let ended = || MoverError::Damaged { repository: name, cause: "the engine ended without a result".into() };
        opened.recv().map_err(|_| ended())?
    }

    fn open_with(settings: &EngineSettings) -> Result<Self> {
        let options = &settings.options;
        Self::start(&settings.repository, |store, runtime, content| {
            let open = |password| {
                plimsoll_repository::Repository::open(store.clone(), runtime.clone(), password, options.clone())
            };
            let password = password_in_file(content);
            match open(password) {
                // The repository's password may include the white space.
                Err(RepositoryError::WrongPassword { .. }) if password != content => open(content),
                opened => opened,
            }
        })
    }

    /// Initializes a repository. `None` if another process was faster.
    fn init(session: &Session) -> Result<Option<Self>> {
        let mut is_lost = false;
        let started = Self::start(&session.repository, |store, runtime, content| {
            let created = plimsoll_repository::Repository::init(store, runtime, password_in_file(content));
            is_lost = matches!(created, Err(RepositoryError::AlreadyInitialized { .. }));
            created
        });
        match started {
            Err(_) if is_lost => Ok(None),
            started => started.map(Some),
        }
    }

    fn start(
        repository: &Repository,
        open: impl FnOnce(
            Store,
            tokio::runtime::Handle,
            &[u8],
        ) -> plimsoll_repository::Result<plimsoll_repository::Repository>,
    ) -> Result<Self> {
        let name = repository.location.name();
        let runtime = Runtime::new().map_err(|error| MoverError::local("start a runtime", &error))?;
        let store = {
            let _inside = runtime.enter();
            let location = repository.location.location();
            Store::open(&location).map_err(|error| MoverError::from_store(&error, &name))?
        };
        let password = repository.password.expose();
        let opened = open(store, runtime.handle().clone(), password);
        let repository = Arc::new(opened.map_err(|error| MoverError::from_repository(&error, &name))?);
        Ok(Self { name, repository, _runtime: runtime })
    }

    fn error(&self, error: &RepositoryError) -> MoverError {
        MoverError::from_repository(error, &self.name)
    }

    /// Lists the snapshots. A damaged one does not affect the others.
    fn snapshots(&self) -> Result<ReadableSnapshots> {
        let (snapshots, damage) = self.repository.readable_snapshots().map_err(|error| self.error(&error))?;
        let damage =
            damage.first().map(|first| format!("{} snapshots cannot be read; first error: {first}", damage.len()));
        if let Some(damage) = &damage {
            tracing::warn!("repository {}: {damage}", self.name);
        }
        Ok(ReadableSnapshots { snapshots, damage })
    }
}

/// The version of a repository's format.
pub(crate) fn repository_version(session: &Session) -> Result<u32> {
    Ok(Engine::open(session)?.repository.version())
}

/// Initializes a repository and waits for concurrent initializations. Returns its ID; `None` if another process was faster.
fn initialize(session: &Session, probe: &Probe) -> Result<Option<String>> {
    let name = session.name();
    repository::remove_interrupted_init(probe, &name)?;
    session.task.say("initializing the repository");
    let own = Engine::init(session)?.map(|engine| engine.repository.id().to_string());
    if own.is_none() && !probe.exists("config")? {
        repository::remove_interrupted_init(probe, &name)?;
        return Err(MoverError::Damaged { repository: name, cause: "snapshots without a config".into() });
    }
    repository::wait_for_concurrent_init(session)?;
    Ok(own)
}

/// Reports an unreachable store at once; the engine would retry for longer.
fn require_repository(session: &Session) -> Result<()> {
    require_config(&Probe::open(&session.repository.location)?, &session.name())
}

fn require_config(probe: &Probe, name: &str) -> Result<()> {
    if probe.exists("config")? { Ok(()) } else { Err(MoverError::RepositoryNotFound { repository: name.into() }) }
}

impl Mover for BuiltIn {
    fn kind(&self) -> MoverKind {
        MoverKind::BuiltIn
    }

    fn fidelity(&self) -> Fidelity {
        Fidelity::OF_RESTIC_FORMAT
    }

    fn backup(&self, backup: &Backup, session: &Session) -> Result<BackupOutcome> {
        // A target with its own path may be a single file.
        if backup.at.as_ref() != Some(&backup.directory) {
            require_directory(&backup.directory)?;
        }
        if backup.at.is_none() && volume_scan::is_empty(&backup.directory) {
            require_repository(session)?;
            // As in restic: a PodVolumeBackup without a snapshot means an empty volume.
            crate::meters::Meters::new(&session.task).finish(0, 0);
            return Ok(BackupOutcome::default());
        }
        let engine = Engine::open_for_transfer(session, repository::require_single_init_if_unused)?;
        let (parent, damage) = find_parent(&engine, backup)?;
        let options = options(backup, parent, session.attempt > 1)?;
        let done = engine.repository.backup(&options, &session.task, &session.cancel);
        let done = done.map_err(|error| backup_error(&error, &engine))?;
        let (bytes, files) = (done.summary.total_bytes_processed, done.summary.total_files_processed);
        Ok(BackupOutcome {
            snapshot: Some(done.snapshot.to_string()),
            parent: parent.map(|id| id.to_string()),
            bytes,
            files,
            added: Some(done.summary.data_added),
            problems: problems(&done.problems, done.problem_count, &backup.directory),
            warnings: lock_warnings(done.locked).into_iter().chain(damage).collect(),
        })
    }

    fn restore(&self, restore: &Restore, session: &Session) -> Result<RestoreOutcome> {
        require_id(&restore.snapshot)?;
        require_directory(&restore.directory)?;
        let engine = Engine::open_for_transfer(session, |_, _| Ok(()))?;
        let found = engine.repository.find_snapshot(&restore.snapshot);
        let (id, snapshot) = found.map_err(|error| engine.error(&error))?;
        let mut options = RestoreOptions::new(id, &restore.directory);
        options.overwrite = if restore.resumed { Overwrite::IfChanged } else { Overwrite::Always };
        options.workers = threads(restore.parallel);
        options.sparse = restore.sparse;
        let done = engine.repository.restore(&options, &session.task, &session.cancel);
        let done = done.map_err(|error| engine.error(&error))?;
        if done.problems.iter().any(|problem| is_full(&problem.cause)) {
            return Err(MoverError::VolumeFull { path: restore.directory.display().to_string() });
        }
        let counts = session.task.meter(Unit::Bytes).counts();
        let bytes = match counts.total {
            Total::Final(total) => total,
            _ => counts.settled(),
        };
        let mut problems = problems(&done.problems, done.problem_count, &restore.directory);
        if let Some(root) = VolumeRoot::from_tags(&parse_tags(&snapshot.tags)) {
            root.restore(&restore.directory, &mut problems);
        }
        let warnings = lock_warnings(done.locked);
        Ok(RestoreOutcome { bytes, files: done.files + done.skipped, problems, warnings })
    }

    fn ensure(&self, session: &Session) -> Result<EnsureOutcome> {
        let (probe, name) = (Probe::open(&session.repository.location)?, session.name());
        let created = if probe.exists("config")? { None } else { initialize(session, &probe)? };
        repository::require_single_init_if_unused(&probe, &name)?;
        let engine = Engine::open(session)?;
        let id = engine.repository.id().to_string();
        if created.as_ref().is_some_and(|own| *own != id) {
            return Err(MoverError::InitConflict { repository: name, found: "the config has another ID".into() });
        }
        let mut warnings = password_warnings(session.repository.password.expose());
        warnings.extend(version_warning(engine.repository.version()));
        Ok(EnsureOutcome { created: created.is_some(), id, warnings })
    }

    fn snapshots(&self, session: &Session) -> Result<Vec<SnapshotInfo>> {
        require_repository(session)?;
        let engine = Engine::open(session)?;
        let info = |(id, snapshot): (Id, Snapshot)| {
            Some(SnapshotInfo {
                id: id.to_string(),
                time: snapshot.time.to_string().parse().ok()?,
                ended: snapshot.summary.as_ref().and_then(|summary| summary.backup_end.to_string().parse().ok()),
                tags: parse_tags(&snapshot.tags),
                source: snapshot.paths.join(" "),
                bytes: snapshot.summary.map(|summary| summary.total_bytes_processed),
            })
        };
        Ok(engine.snapshots()?.snapshots.into_iter().filter_map(info).collect())
    }

    fn forget(&self, snapshots: &[String], session: &Session) -> Result<usize> {
        snapshots.iter().try_for_each(|id| require_id(id))?;
        require_repository(session)?;
        let engine = Engine::open(session)?;
        let _lock = Lock::take(&engine.repository, LockKind::Exclusive).map_err(|error| engine.error(&error))?;
        // By ID, so that unreadable snapshots can be forgotten too.
        let probe = Probe::open(&session.repository.location)?;
        for object in probe.list("snapshots")? {
            let id = object.key.rsplit('/').next().unwrap_or_default();
            if snapshots.iter().any(|requested| id.starts_with(requested.as_str())) {
                probe.delete(&object.key)?;
            }
        }
        Ok(snapshots.len())
    }

    fn maintain(&self, maintenance: Maintenance, session: &Session) -> Result<MaintenanceOutcome> {
        require_repository(session)?;
        let engine = Engine::open(session)?;
        maintain(&engine.repository, maintenance, session).map_err(|error| engine.error(&error))
    }

    fn verify(&self, verify: &Verify, session: &Session) -> Result<VerifyOutcome> {
        verify.snapshots.iter().try_for_each(|id| require_id(id))?;
        require_repository(session)?;
        let engine = Engine::open(session)?;
        let read = match verify.percent {
            0 => ReadData::Nothing,
            100.. => ReadData::Everything,
            percent => ReadData::Sample(percent),
        };
        let verified = engine.repository.verify(&verify.snapshots, read, &session.task, &session.cancel);
        let verified = verified.map_err(|error| engine.error(&error))?;
        let ids = |ids: Vec<Id>| ids.iter().map(ToString::to_string).collect();
        let damage =
            verified.damage.into_iter().map(|found| Damage { text: found.text, snapshots: ids(found.snapshots) });
        Ok(VerifyOutcome {
            snapshots: verified.snapshots,
            bytes_read: Some(verified.bytes_read),
            damage: damage.collect(),
            damage_count: verified.damage_count,
            warnings: verified.warnings,
        })
    }

    fn locks(&self, session: &Session) -> Result<Vec<LockInfo>> {
        require_repository(session)?;
        let engine = Engine::open(session)?;
        let info = |(id, file): (Id, plimsoll_repository::LockFile)| {
            Some(LockInfo {
                id: id.to_string(),
                time: file.time.to_string().parse().ok()?,
                hostname: file.hostname,
                pid: file.pid,
                exclusive: file.exclusive,
            })
        };
        Ok(engine.repository.locks().map_err(|error| engine.error(&error))?.into_iter().filter_map(info).collect())
    }

    fn unlock(&self, locks: &[String], session: &Session) -> Result<usize> {
        let probe = Probe::open(&session.repository.location)?;
        for lock in locks {
            require_id(lock)?;
            probe.delete(&format!("locks/{lock}"))?;
        }
        Ok(locks.len())
    }
}

fn options(backup: &Backup, parent: Option<Id>, is_resumed: bool) -> Result<BackupOptions> {
    let (directory, only) = (backup.directory.clone(), backup.only.clone().map(PathBuf::into_os_string));
    let path = |at: &Path| only.as_ref().map_or_else(|| at.to_owned(), |name| at.join(name)).display().to_string();
    let (path, target) = match &backup.at {
        Some(at) if *at == directory => (path(at), Target::Paths(vec![directory])),
        Some(at) => (path(at), Target::Placed { directory, at: at.clone(), only }),
        None => (format!("/{}", backup.source), Target::Content(directory)),
    };
    let mut options = BackupOptions::new(target);
    options.resumed = is_resumed;
    options.readers = threads(backup.parallel);
    options.record_paths = Some(vec![path]);
    options.hostname = HOST.into();
    options.tags = format_tags(&volume_root::tags(backup)?)?;
    if backup.at.is_some() {
        // As in restic: a tag without a value has no equals sign.
        options.tags.iter_mut().for_each(|tag| tag.truncate(tag.strip_suffix('=').map_or(tag.len(), str::len)));
    }
    options.parent = match parent {
        Some(parent) => Parent::Snapshot(parent),
        None if backup.full => Parent::None,
        None => Parent::Newest,
    };
    Ok(options)
}

/// The number of threads, which the engine limits by its memory; 0 for the engine's default.
fn threads(parallel: Option<u32>) -> usize {
    parallel.map_or(0, |number| number as usize)
}

/// The newest snapshot of the same volume, and a description of damaged snapshots.
fn find_parent(engine: &Engine, backup: &Backup) -> Result<(Option<Id>, Option<String>)> {
    let Some(volume) = backup.volume().filter(|_| !backup.full) else { return Ok((None, None)) };
    let tag = format!("{VOLUME_TAG}={volume}");
    let ReadableSnapshots { snapshots, damage } = engine.snapshots()?;
    let same = snapshots.into_iter().filter(|(_, snapshot)| snapshot.tags.contains(&tag));
    Ok((same.max_by_key(|(_, snapshot)| snapshot.time).map(|(id, _)| id), damage))
}

/// During a backup, the full disk is the repository's.
fn backup_error(error: &RepositoryError, engine: &Engine) -> MoverError {
    match engine.error(error) {
        MoverError::VolumeFull { .. } => MoverError::RepositoryFull { repository: engine.name.clone() },
        other => other,
    }
}

/// Warns about a repository that the engine cannot write to.
fn version_warning(version: u32) -> Option<String> {
    (version != WRITABLE_VERSION).then(|| {
        format!(
            "the built-in mover can read but not write repositories of format version {version}: upgrade it with restic \
             migrate upgrade_repo_v2, or use restic (--uploader-type restic)"
        )
    })
}

/// Warns about a transfer without a lock file.
fn lock_warnings(locked: bool) -> Vec<String> {
    let warning =
        "the repository's store does not allow deletes, so no lock file was kept: do not run prune during a transfer";
    (!locked).then(|| warning.to_owned()).into_iter().collect()
}

fn problems(engine_problems: &[plimsoll_repository::backup::Problem], count: u64, root: &Path) -> Problems {
    let root = root.to_string_lossy();
    let mut problems = Problems::default();
    for problem in engine_problems {
        let path = problem.path.strip_prefix(&*root).unwrap_or(&problem.path).trim_start_matches('/');
        problems.add(path, problem.cause.clone());
    }
    problems.count = problems.count.max(count);
    problems
}
