//! Our own engine: no other program, the same repositories as restic's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_progress::{Total, Unit};
use plimsoll_repository::backup::{BackupOptions, Parent, Target};
use plimsoll_repository::format::snapshot::Snapshot;
use plimsoll_repository::restore::{Overwrite, RestoreOptions};
use plimsoll_repository::{Id, Lock, LockKind, OpenOptions, RepositoryError, password_in_file};
use plimsoll_store::Store;
use tokio::runtime::Runtime;

use crate::error::is_full;
use crate::job::{Backup, HOST, Kind, Restore, VOLUME_TAG};
use crate::lifecycle::{own_pod, password_warnings};
use crate::mover::{Fidelity, Mover, Session, require_directory};
use crate::outcome::{BackupOutcome, Ensured, LockInfo, Problems, RestoreOutcome, SnapshotInfo};
use crate::probe::Probe;
use crate::restic::{from_words, repository, require_id, to_words};
use crate::root::{self, Root};
use crate::{MoverError, Result, survey};

/// The mover that needs no program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuiltIn;

/// The version of every repository that the engine makes, and the only one that it writes.
const WRITTEN_VERSION: u32 = 2;

/// The engine, open on one repository. Its runtime ends with it.
struct Engine {
    name: String,
    repository: Arc<plimsoll_repository::Repository>,
    _runtime: Runtime,
}

/// The snapshots that can be read, and what is wrong with the others.
struct Readable {
    snapshots: Vec<(Id, Snapshot)>,
    damage: Option<String>,
}

impl Engine {
    fn open(session: &Session) -> Result<Self> {
        Self::start(session, |store, runtime, content| {
            let cache = session.cache.as_ref().map(|directory| directory.join("built-in"));
            let (cancel, pod) = (session.cancel.clone(), own_pod());
            let options = OpenOptions { cache, cancel, pod, ..OpenOptions::default() };
            let open = |password| {
                plimsoll_repository::Repository::open(store.clone(), runtime.clone(), password, options.clone())
            };
            let password = password_in_file(content);
            match open(password) {
                // Made by somebody who meant every byte.
                Err(RepositoryError::WrongPassword { .. }) if password != content => open(content),
                opened => opened,
            }
        })
    }

    /// The new repository; nothing if somebody else was faster.
    fn init(session: &Session) -> Result<Option<Self>> {
        let mut lost = false;
        let started = Self::start(session, |store, runtime, content| {
            let made = plimsoll_repository::Repository::init(store, runtime, password_in_file(content));
            lost = matches!(made, Err(RepositoryError::AlreadyInitialized { .. }));
            made
        });
        match started {
            Err(_) if lost => Ok(None),
            started => started.map(Some),
        }
    }

    fn start(
        session: &Session,
        open: impl FnOnce(
            Store,
            tokio::runtime::Handle,
            &[u8],
        ) -> plimsoll_repository::Result<plimsoll_repository::Repository>,
    ) -> Result<Self> {
        let name = session.name();
        let runtime = Runtime::new().map_err(|error| MoverError::local("start a runtime", &error))?;
        let store = {
            let _inside = runtime.enter();
            let location = session.repository.place.location();
            Store::open(&location).map_err(|error| MoverError::of_store(&error, &name))?
        };
        let password = session.repository.password.expose();
        let opened = open(store, runtime.handle().clone(), password);
        let repository = Arc::new(opened.map_err(|error| MoverError::of_engine(&error, &name))?);
        Ok(Self { name, repository, _runtime: runtime })
    }

    fn named(&self, error: &RepositoryError) -> MoverError {
        MoverError::of_engine(error, &self.name)
    }

    /// A damaged snapshot is in nobody's way but its own.
    fn snapshots(&self) -> Result<Readable> {
        let (snapshots, damage) = self.repository.readable_snapshots().map_err(|error| self.named(&error))?;
        let damage =
            damage.first().map(|first| format!("{} snapshots cannot be read, among them: {first}", damage.len()));
        if let Some(damage) = &damage {
            tracing::warn!("repository {}: {damage}", self.name);
        }
        Ok(Readable { snapshots, damage })
    }
}

/// The version of a repository's format.
pub(crate) fn repository_version(session: &Session) -> Result<u32> {
    Ok(Engine::open(session)?.repository.version())
}

/// Makes a repository and waits until a rival would be seen. Its ID; nothing if a rival made it.
fn make(session: &Session, probe: &Probe) -> Result<Option<String>> {
    let name = session.name();
    repository::clear_interrupted(probe, &name)?;
    session.task.say("initialising the repository");
    let own = Engine::init(session)?.map(|engine| engine.repository.id().to_string());
    if own.is_none() && !probe.exists("config")? {
        repository::clear_interrupted(probe, &name)?;
        return Err(MoverError::Damaged { repository: name, cause: "it has snapshots but no config".into() });
    }
    repository::let_rivals_show(session)?;
    Ok(own)
}

/// A dead store is named at once; the engine itself would be patient with it.
fn require_repository(session: &Session) -> Result<()> {
    if !Probe::open(&session.repository.place)?.exists("config")? {
        return Err(MoverError::NoRepository { repository: session.name() });
    }
    Ok(())
}

impl Mover for BuiltIn {
    fn kind(&self) -> Kind {
        Kind::BuiltIn
    }

    fn fidelity(&self) -> Fidelity {
        Fidelity {
            hard_links: true,
            attributes: true,
            special_files: true,
            any_name: true,
            directory_times: true,
            empty_snapshots: false,
        }
    }

    fn backup(&self, backup: &Backup, session: &Session) -> Result<BackupOutcome> {
        // One that keeps its own path may be a single file.
        if backup.at.as_ref() != Some(&backup.directory) {
            require_directory(&backup.directory)?;
        }
        require_repository(session)?;
        if backup.at.is_none() && survey::is_empty(&backup.directory) {
            // As with restic: a PodVolumeBackup of its type without a snapshot means an empty volume.
            crate::meters::Meters::new(&session.task).finish(0, 0);
            return Ok(BackupOutcome::default());
        }
        repository::require_single_if_unused(&Probe::open(&session.repository.place)?, &session.name())?;
        let engine = Engine::open(session)?;
        let (parent, damage) = find_parent(&engine, backup)?;
        let options = options(backup, parent)?;
        let done = engine.repository.backup(&options, &session.task, &session.cancel);
        let done = done.map_err(|error| full_repository(&error, &engine))?;
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
        require_repository(session)?;
        let engine = Engine::open(session)?;
        let found = engine.repository.find_snapshot(&restore.snapshot);
        let (id, snapshot) = found.map_err(|error| engine.named(&error))?;
        let mut options = RestoreOptions::new(id, &restore.directory);
        options.overwrite = if restore.resumed { Overwrite::IfChanged } else { Overwrite::Always };
        options.workers = workers(restore.parallel);
        options.sparse = restore.sparse;
        let done = engine.repository.restore(&options, &session.task, &session.cancel);
        let done = done.map_err(|error| engine.named(&error))?;
        if done.problems.iter().any(|problem| is_full(&problem.cause)) {
            return Err(MoverError::VolumeFull { path: restore.directory.display().to_string() });
        }
        let counts = session.task.meter(Unit::Bytes).counts();
        let bytes = match counts.total {
            Total::Final(total) => total,
            _ => counts.settled(),
        };
        let mut problems = problems(&done.problems, done.problem_count, &restore.directory);
        if let Some(root) = Root::in_tags(&from_words(&snapshot.tags)) {
            root.restore(&restore.directory, &mut problems);
        }
        let warnings = lock_warnings(done.locked);
        Ok(RestoreOutcome { bytes, files: done.files + done.skipped, problems, warnings })
    }

    fn ensure(&self, session: &Session) -> Result<Ensured> {
        let (probe, name) = (Probe::open(&session.repository.place)?, session.name());
        let made = if probe.exists("config")? { None } else { make(session, &probe)? };
        repository::require_single_if_unused(&probe, &name)?;
        let engine = Engine::open(session)?;
        let id = engine.repository.id().to_string();
        if made.as_ref().is_some_and(|own| *own != id) {
            return Err(MoverError::InitialisedTwice { repository: name, found: "another's config".into() });
        }
        let mut warnings = password_warnings(session.repository.password.expose());
        warnings.extend(version_warning(engine.repository.version()));
        Ok(Ensured { created: made.is_some(), id, warnings })
    }

    fn snapshots(&self, session: &Session) -> Result<Vec<SnapshotInfo>> {
        require_repository(session)?;
        let engine = Engine::open(session)?;
        let info = |(id, snapshot): (Id, Snapshot)| {
            Some(SnapshotInfo {
                id: id.to_string(),
                time: snapshot.time.to_string().parse().ok()?,
                ended: snapshot.summary.as_ref().and_then(|summary| summary.backup_end.to_string().parse().ok()),
                tags: from_words(&snapshot.tags),
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
        let _lock = Lock::take(&engine.repository, LockKind::Exclusive).map_err(|error| engine.named(&error))?;
        // By their names alone: also one that cannot be read is forgotten.
        let probe = Probe::open(&session.repository.place)?;
        for found in probe.list("snapshots")? {
            let id = found.key.rsplit('/').next().unwrap_or_default();
            if snapshots.iter().any(|named| id.starts_with(named.as_str())) {
                probe.delete(&found.key)?;
            }
        }
        Ok(snapshots.len())
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
        Ok(engine.repository.locks().map_err(|error| engine.named(&error))?.into_iter().filter_map(info).collect())
    }

    fn unlock(&self, locks: &[String], session: &Session) -> Result<usize> {
        let probe = Probe::open(&session.repository.place)?;
        for lock in locks {
            require_id(lock)?;
            probe.delete(&format!("locks/{lock}"))?;
        }
        Ok(locks.len())
    }
}

fn options(backup: &Backup, parent: Option<Id>) -> Result<BackupOptions> {
    let (directory, only) = (backup.directory.clone(), backup.only.clone().map(PathBuf::into_os_string));
    let path = |at: &Path| only.as_ref().map_or_else(|| at.to_owned(), |name| at.join(name)).display().to_string();
    let (path, target) = match &backup.at {
        Some(at) if *at == directory => (path(at), Target::Paths(vec![directory])),
        Some(at) => (path(at), Target::Placed { directory, at: at.clone(), only }),
        None => (format!("/{}", backup.source), Target::Content(directory)),
    };
    let mut options = BackupOptions::new(target);
    options.workers = workers(backup.parallel);
    options.record_paths = Some(vec![path]);
    options.hostname = HOST.into();
    options.tags = to_words(&root::tags(backup)?)?;
    if backup.at.is_some() {
        // As restic itself has them: a tag without a value is a word.
        options.tags.iter_mut().for_each(|tag| tag.truncate(tag.strip_suffix('=').map_or(tag.len(), str::len)));
    }
    options.parent = match parent {
        Some(parent) => Parent::Snapshot(parent),
        None if backup.full => Parent::None,
        None => Parent::Newest,
    };
    Ok(options)
}

/// Threads for so many files at a time, of which the engine takes as many as its memory has room for; 0 leaves it to the
/// engine.
fn workers(parallel: Option<u32>) -> usize {
    parallel.map_or(0, |number| number as usize)
}

/// The newest snapshot of the same volume, and what is wrong with those that cannot be read.
fn find_parent(engine: &Engine, backup: &Backup) -> Result<(Option<Id>, Option<String>)> {
    let Some(volume) = backup.volume().filter(|_| !backup.full) else { return Ok((None, None)) };
    let word = format!("{VOLUME_TAG}={volume}");
    let Readable { snapshots, damage } = engine.snapshots()?;
    let same = snapshots.into_iter().filter(|(_, snapshot)| snapshot.tags.contains(&word));
    Ok((same.max_by_key(|(_, snapshot)| snapshot.time).map(|(id, _)| id), damage))
}

/// While backing up, a full disk is the repository's.
fn full_repository(error: &RepositoryError, engine: &Engine) -> MoverError {
    match engine.named(error) {
        MoverError::VolumeFull { .. } => MoverError::RepositoryFull { repository: engine.name.clone() },
        other => other,
    }
}

/// What the owner of a repository should know before the first backup fails in it.
fn version_warning(version: u32) -> Option<String> {
    (version != WRITTEN_VERSION).then(|| {
        format!(
            "the repository is of version {version}, which the built-in mover reads and does not write: upgrade it with restic \
             migrate upgrade_repo_v2, or let restic move the volumes (--uploader-type restic)"
        )
    })
}

/// What the owner of a repository should know where no lock file was kept.
fn lock_warnings(locked: bool) -> Vec<String> {
    let warning =
        "the repository's store lets nothing be deleted, so no lock file was kept: nobody may prune beside a transfer";
    (!locked).then(|| warning.to_owned()).into_iter().collect()
}

fn problems(found: &[plimsoll_repository::backup::Problem], count: u64, root: &Path) -> Problems {
    let root = root.to_string_lossy();
    let mut problems = Problems::default();
    for problem in found {
        let path = problem.path.strip_prefix(&*root).unwrap_or(&problem.path).trim_start_matches('/');
        problems.add(path, problem.cause.clone());
    }
    problems.count = problems.count.max(count);
    problems
}
