//! A repository that is open: its files by kind, sealed and verified.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use futures::stream::{StreamExt, TryStreamExt};
use plimsoll_progress::Clock;
use plimsoll_store::{ObjectInfo, Store, StoreError};
use tokio::runtime::Handle;

use crate::cancel::Cancel;
use crate::format::config::Config;
use crate::format::crypto::Key;
use crate::format::id::Id;
use crate::format::key::{KeyError, KeyFile};
use crate::format::snapshot::Snapshot;
use crate::format::time::Time;
use crate::format::unpacked;
use crate::{RepositoryError, Result, system};

/// The kinds of files whose names are hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Key,
    Pack,
    Index,
    Snapshot,
    Lock,
}

impl FileKind {
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Key => "keys",
            Self::Pack => "data",
            Self::Index => "index",
            Self::Snapshot => "snapshots",
            Self::Lock => "locks",
        }
    }

    pub(crate) fn key_of(self, id: &Id) -> String {
        match self {
            Self::Pack => {
                let name = id.to_string();
                format!("data/{}/{name}", &name[..2])
            }
            other => format!("{}/{id}", other.folder()),
        }
    }
}

/// A file of the repository as the store lists it.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub id: Id,
    pub size: u64,
    pub modified: std::time::SystemTime,
}

/// How a repository is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Index files are kept here too, so that the next run need not download them again. Any number of processes and
    /// repositories may share the directory.
    pub cache: Option<PathBuf>,
    /// Go on without a `config` that can be read, only to get data back: nothing can be written then.
    pub rescue: bool,
    /// Where the age of our own lock comes from, if not from the system: a test's hand.
    pub clock: Option<Clock>,
}

/// How many small files are loaded at the same time.
pub(crate) const LOADS_AT_ONCE: usize = 8;
/// More key files than these are not tried: each costs a good part of a second.
const MOST_KEYS: usize = 20;

/// An open repository.
pub struct Repository {
    pub(crate) store: Store,
    pub(crate) runtime: Handle,
    pub(crate) key: Key,
    pub(crate) config: Config,
    pub(crate) options: OpenOptions,
    /// The store was seen to refuse a delete.
    pub(crate) keeps_everything: AtomicBool,
}

impl std::fmt::Debug for Repository {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Repository").field("store", &self.store).field("id", &self.config.id).finish_non_exhaustive()
    }
}

impl Repository {
    /// Makes a repository of version 2 where there is none. One that an earlier call with the same password began and did
    /// not complete is completed.
    pub fn init(store: Store, runtime: Handle, password: &[u8]) -> Result<Self> {
        let location = store.name().to_owned();
        if runtime.block_on(is_taken(&store))? {
            return Err(RepositoryError::AlreadyInitialized { location });
        }
        let (key, own) = match begun_key(&store, &runtime, password)? {
            Some(key) => (key, None),
            None => create_key(&store, &runtime, password).map(|(key, name)| (key, Some(name)))?,
        };
        let mut sealed = Vec::new();
        key.seal(&Config::generate().encode(), &mut sealed);
        // Two may begin at the same moment: the config that is there in the end decides.
        let stored = runtime.block_on(async {
            match store.put_if_absent("config", sealed.clone()).await {
                Err(StoreError::Unsupported { .. }) => store.put("config", sealed).await?,
                written => drop(written?),
            }
            store.get("config").await
        })?;
        let mut plain = Vec::new();
        if key.open(&stored, &mut plain).is_ok() {
            let config = Config::parse(&plain).map_err(|cause| RepositoryError::Unsupported { location, cause })?;
            return Ok(Self::assemble(store, runtime, key, config, OpenOptions::default()));
        }
        // It is the other's, and belongs to another key: ours would only mislead.
        if let Some(name) = own {
            runtime.block_on(store.delete(&name))?;
        }
        Err(RepositoryError::AlreadyInitialized { location })
    }

    /// Opens a repository with one of its passwords.
    pub fn open(store: Store, runtime: Handle, password: &[u8], options: OpenOptions) -> Result<Self> {
        let location = store.name().to_owned();
        let sealed = match runtime.block_on(store.get("config")) {
            Ok(config) => config,
            Err(error) if error.is_not_found() && !options.rescue => {
                return Err(RepositoryError::NotARepository { location });
            }
            Err(error) if error.is_not_found() => Bytes::new(),
            Err(error) => return Err(error.into()),
        };
        let (key, plain) = find_key(&store, &runtime, password, &sealed)?;
        let config = match plain {
            Some(plain) => Config::parse(&plain).map_err(|cause| RepositoryError::Unsupported { location, cause })?,
            None if options.rescue => Config::unknown(),
            None => {
                let cause = "its seal is broken; opened with the option rescue, files can be restored without it";
                return Err(RepositoryError::corrupt("config", cause));
            }
        };
        Ok(Self::assemble(store, runtime, key, config, options))
    }

    fn assemble(store: Store, runtime: Handle, key: Key, config: Config, options: OpenOptions) -> Self {
        Self { store, runtime, key, config, options, keeps_everything: AtomicBool::new(false) }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.options.clock.clone().unwrap_or_else(Clock::system)
    }

    /// The repository's own random name.
    pub fn id(&self) -> Id {
        self.config.id
    }

    /// 1 or 2; 1 can only be read. 0 if the config is not known.
    pub fn version(&self) -> u32 {
        self.config.version
    }

    /// All snapshots, oldest first. One that cannot be read is an error; [`Repository::readable_snapshots`] goes on.
    pub fn snapshots(&self) -> Result<Vec<(Id, Snapshot)>> {
        let (snapshots, damage) = self.readable_snapshots()?;
        damage.into_iter().next().map_or(Ok(snapshots), Err)
    }

    /// The snapshots that can be read, oldest first, and what is wrong with the others.
    pub fn readable_snapshots(&self) -> Result<(Vec<(Id, Snapshot)>, Vec<RepositoryError>)> {
        self.read_snapshots(|_| true)
    }

    fn read_snapshots(&self, wanted: impl Fn(&Id) -> bool) -> Result<(Vec<(Id, Snapshot)>, Vec<RepositoryError>)> {
        let (mut snapshots, mut damage) = (Vec::new(), Vec::new());
        let files = self.list(FileKind::Snapshot)?;
        for (id, loaded) in self.load_each(FileKind::Snapshot, files.iter().map(|file| file.id).filter(wanted)) {
            let snapshot = loaded.and_then(|json| {
                Snapshot::parse(&json).map_err(|cause| RepositoryError::corrupt(format!("snapshot {id}"), cause))
            });
            match snapshot {
                Ok(snapshot) => snapshots.push((id, snapshot)),
                Err(error @ RepositoryError::Corrupt { .. }) => damage.push(error),
                Err(error) => return Err(error),
            }
        }
        snapshots.sort_by_key(|(_, snapshot)| snapshot.time);
        Ok((snapshots, damage))
    }

    /// The snapshot called `latest`, or the one whose ID starts with `name`. Only `latest` minds other snapshots that
    /// cannot be read: one of them might be it.
    pub fn find_snapshot(&self, name: &str) -> Result<(Id, Snapshot)> {
        let latest = name == "latest";
        let (mut found, damage) = self.read_snapshots(|id| latest || id.to_string().starts_with(name))?;
        if let Some(error) = damage.into_iter().next() {
            return Err(error);
        }
        if !latest && found.len() > 1 {
            return Err(RepositoryError::AmbiguousSnapshot { name: name.into() });
        }
        let missing = || RepositoryError::NoSuchSnapshot { name: name.into(), location: self.store.name().into() };
        found.pop().ok_or_else(missing)
    }

    pub(crate) fn list(&self, kind: FileKind) -> Result<Vec<Listed>> {
        let found: Vec<ObjectInfo> = self.runtime.block_on(self.store.list(kind.folder()).try_collect())?;
        Ok(found.into_iter().filter_map(|info| listed(&info)).collect())
    }

    /// The opened content of every file of a kind, several at a time.
    pub(crate) fn load_all(&self, kind: FileKind) -> Result<Vec<(Id, Result<Vec<u8>>)>> {
        let files = self.list(kind)?;
        Ok(self.load_each(kind, files.iter().map(|file| file.id)))
    }

    pub(crate) fn load_each(&self, kind: FileKind, ids: impl Iterator<Item = Id>) -> Vec<(Id, Result<Vec<u8>>)> {
        let loads = ids.map(|id| async move { (id, self.load(kind, id).await) });
        let loads = futures::stream::iter(loads).buffer_unordered(LOADS_AT_ONCE);
        let loaded: Vec<_> = self.runtime.block_on(loads.collect());
        // A file that is gone again was deleted by somebody who may: locks come and go.
        loaded.into_iter().filter(|(_, result)| !is_gone(result)).collect()
    }

    pub(crate) async fn load(&self, kind: FileKind, id: Id) -> Result<Vec<u8>> {
        let sealed = self.load_sealed(kind, id).await?;
        self.open_file(kind, id, &sealed)
    }

    pub(crate) fn open_file(&self, kind: FileKind, id: Id, sealed: &[u8]) -> Result<Vec<u8>> {
        unpacked::open(sealed, &self.key).map_err(|cause| RepositoryError::corrupt(kind.key_of(&id), cause))
    }

    /// The stored bytes, verified against their name; read once more if they do not fit.
    pub(crate) async fn load_sealed(&self, kind: FileKind, id: Id) -> Result<Bytes> {
        let key = kind.key_of(&id);
        for _ in 0..2 {
            let sealed = self.store.get(&key).await?;
            if Id::of(&sealed) == id {
                return Ok(sealed);
            }
        }
        Err(RepositoryError::corrupt(key, "its content does not have the hash that is its name"))
    }

    /// Seals and stores JSON under the hash of the stored bytes.
    pub(crate) async fn save(&self, kind: FileKind, json: &[u8]) -> Result<Id> {
        let sealed = unpacked::seal(json, self.config.version, &self.key)
            .map_err(|error| RepositoryError::corrupt(kind.folder(), error.to_string()))?;
        let id = Id::of(&sealed);
        self.store.put(&kind.key_of(&id), sealed).await?;
        Ok(id)
    }

    /// Waits for the store, but not longer than until somebody asks to stop.
    pub(crate) fn wait<T>(&self, cancel: &Cancel, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(async {
            tokio::select! {
                done = work => done,
                () = cancelled(cancel) => Err(RepositoryError::Cancelled),
            }
        })
    }

    /// Refuses to write into what can only be read.
    pub(crate) fn require_writable(&self) -> Result<()> {
        if self.config.version == 2 {
            return Ok(());
        }
        let cause = match self.config.version {
            1 => "version 1 can only be read; upgrade it with restic migrate upgrade_repo_v2",
            _ => "without its config it can only be read",
        };
        let cause = cause.into();
        Err(RepositoryError::Unsupported { location: self.store.name().into(), cause })
    }
}

pub(crate) async fn cancelled(cancel: &Cancel) {
    while !cancel.is_cancelled() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn is_gone(result: &Result<Vec<u8>>) -> bool {
    matches!(result, Err(RepositoryError::Store(StoreError::NotFound { .. })))
}

pub(crate) fn listed(info: &ObjectInfo) -> Option<Listed> {
    let name = info.key.rsplit('/').next()?;
    Id::parse(name).map(|id| Listed { id, size: info.size, modified: info.modified })
}

/// Whether there is a repository, or what is left of one.
async fn is_taken(store: &Store) -> Result<bool> {
    if store.exists("config").await? {
        return Ok(true);
    }
    Ok(store.list(FileKind::Snapshot.folder()).next().await.transpose()?.is_some())
}

/// The key of a repository that was begun and has no config yet. A key that this password does not open is somebody
/// else's beginning.
fn begun_key(store: &Store, runtime: &Handle, password: &[u8]) -> Result<Option<Key>> {
    let location = store.name().to_owned();
    match find_key(store, runtime, password, &[]) {
        Ok((key, _)) => Ok(Some(key)),
        Err(RepositoryError::WrongPassword { .. }) => {
            let any = runtime.block_on(store.list(FileKind::Key.folder()).next()).transpose()?.is_some();
            if any { Err(RepositoryError::AlreadyInitialized { location }) } else { Ok(None) }
        }
        Err(error) => Err(error),
    }
}

fn create_key(store: &Store, runtime: &Handle, password: &[u8]) -> Result<(Key, String)> {
    let key = Key::random();
    let file = KeyFile::create(&key, password, Time::now().to_string(), system::hostname())
        .and_then(|file| file.encode())
        .map_err(|error| RepositoryError::corrupt("the new key file", error.to_string()))?;
    let name = FileKind::Key.key_of(&Id::of(&file));
    runtime.block_on(store.put(&name, file))?;
    Ok((key, name))
}

/// The master key behind a key file that this password opens, with the opened config. Of several such keys the one that
/// opens the config is taken; if none does, the first, without a config.
fn find_key(store: &Store, runtime: &Handle, password: &[u8], config: &[u8]) -> Result<(Key, Option<Vec<u8>>)> {
    let files: Vec<ObjectInfo> = runtime.block_on(store.list(FileKind::Key.folder()).try_collect())?;
    let (mut damage, mut found) = (None, None);
    for file in files.iter().filter_map(listed).take(MOST_KEYS) {
        let name = FileKind::Key.key_of(&file.id);
        let content = runtime.block_on(store.get(&name))?;
        match KeyFile::parse(&content).and_then(|key| key.unlock(password)) {
            Ok(key) => {
                let mut plain = Vec::new();
                if key.open(config, &mut plain).is_ok() {
                    return Ok((key, Some(plain)));
                }
                found.get_or_insert((key, None));
            }
            Err(KeyError::WrongPassword) => {}
            Err(KeyError::Malformed(cause)) => damage = Some(RepositoryError::corrupt(name, cause)),
        }
    }
    let location = store.name().to_owned();
    found.ok_or_else(|| damage.unwrap_or(RepositoryError::WrongPassword { location }))
}
