//! A repository that is open: its files by kind, sealed and verified.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use bytes::{Bytes, BytesMut};
use futures::stream::{StreamExt, TryStreamExt};
use plimsoll_progress::Clock;
use plimsoll_store::{ObjectInfo, Store, StoreError};
use tokio::runtime::Handle;

use crate::cancel::Cancel;
use crate::file_cache::Source;
use crate::format::config::Config;
use crate::format::crypto::Key;
use crate::format::id::Id;
use crate::format::unpacked;
use crate::{RepositoryError, Result};

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

    /// No program writes larger ones: what calls itself one would only take the memory of this machine, and anybody who may
    /// write to the store can put it there.
    pub(crate) fn largest(self) -> u64 {
        const MIB: u64 = 1024 * 1024;
        match self {
            Self::Key | Self::Lock => MIB,
            Self::Snapshot => 64 * MIB,
            Self::Index => 256 * MIB,
            Self::Pack => 512 * MIB,
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

/// What a file holds, or why that is not known.
pub(crate) type Loaded = (Id, Result<Vec<u8>>);

/// How a repository is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Index files are kept here too, so that the next run need not download them again. Any number of processes and
    /// repositories may share the directory.
    pub cache: Option<PathBuf>,
    /// Go on without a `config` that can be read, only to get data back: nothing can be written then.
    pub rescue: bool,
    /// Ends those calls that take no other, the opening among them.
    pub cancel: Cancel,
    /// Where the age of our own lock comes from, if not from the system: a test's hand.
    pub clock: Option<Clock>,
    /// The UID of the pod whose only container this process runs in: whoever runs in that pod next then knows that a lock of
    /// this process is nobody's any more.
    pub pod: Option<String>,
}

/// How many small files are loaded at the same time.
pub(crate) const LOADS_AT_ONCE: usize = 8;

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
    pub(crate) fn assemble(store: Store, runtime: Handle, key: Key, config: Config, options: OpenOptions) -> Self {
        Self { store, runtime, key, config, options, keeps_everything: AtomicBool::new(false) }
    }

    /// The repository's own random name.
    pub fn id(&self) -> Id {
        self.config.id
    }

    /// 1 or 2; 1 can only be read. 0 if the config is not known.
    pub fn version(&self) -> u32 {
        self.config.version
    }

    pub(crate) fn list(&self, kind: FileKind, cancel: &Cancel) -> Result<Vec<Listed>> {
        self.list_those(kind, cancel, |_| true)
    }

    /// Lists only what is wanted: there may be very many, and what is not kept takes no memory.
    pub(crate) fn list_those(
        &self,
        kind: FileKind,
        cancel: &Cancel,
        wanted: impl Fn(&Listed) -> bool,
    ) -> Result<Vec<Listed>> {
        let wanted = |info: ObjectInfo| std::future::ready(Ok(listed(&info).filter(&wanted)));
        self.wait(cancel, async { Ok(self.store.list(kind.folder()).try_filter_map(wanted).try_collect().await?) })
    }

    /// The opened content of these files, several at a time.
    pub(crate) fn load_each(
        &self,
        kind: FileKind,
        ids: impl Iterator<Item = Id>,
        cancel: &Cancel,
    ) -> Result<Vec<Loaded>> {
        let mut loaded = Vec::new();
        self.each_file(kind, Source::Store, ids, cancel, |id, json| {
            loaded.push((id, json));
            Ok(())
        })?;
        Ok(loaded)
    }

    /// Hands the opened content of each of these files to `take`, or what is wrong with it. Several are on their way at a time,
    /// and opened one after the other: unpacked they are many times as large.
    pub(crate) fn each_file(
        &self,
        kind: FileKind,
        source: Source,
        ids: impl Iterator<Item = Id>,
        cancel: &Cancel,
        mut take: impl FnMut(Id, Result<Vec<u8>>) -> Result<()>,
    ) -> Result<()> {
        let loads = ids.map(|id| async move { (id, self.load_from(source, kind, id).await) });
        let mut loads = futures::stream::iter(loads).buffer_unordered(LOADS_AT_ONCE);
        self.wait(cancel, async {
            while let Some((id, sealed)) = loads.next().await {
                // One that is gone again was deleted by somebody who may: locks come and go. But what an index file lists would
                // be missed silently.
                if kind == FileKind::Index || !is_gone(&sealed) {
                    take(id, sealed.and_then(|sealed| self.open_file(kind, id, &sealed)))?;
                }
            }
            Ok(())
        })
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
            let read = self.read(&key, || get_at_most(&self.store, &key, kind.largest())).await?;
            let sealed = read.map_err(|size| RepositoryError::corrupt(key.clone(), too_large(size)))?;
            if Id::of(&sealed) == id {
                return Ok(sealed);
            }
        }
        Err(RepositoryError::corrupt(key, "its content does not have the hash that is its name"))
    }

    /// Reads a file or a part of one. Where the store fails again and again for this one only, and answers otherwise, the
    /// file counts as damaged: everything else can still be had.
    pub(crate) async fn read<T, F>(&self, key: &str, read: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        match read().await {
            Ok(content) => return Ok(content),
            Err(failure) if failure.is_not_found() || !self.answers().await => return Err(failure.into()),
            Err(_) => {}
        }
        read().await.map_err(|failure| match failure {
            StoreError::NotFound { .. } => failure.into(),
            failure => RepositoryError::corrupt(key, failure.to_string()),
        })
    }

    /// Whether the store gives a plain answer to a plain question.
    async fn answers(&self) -> bool {
        self.store.get("config").await.map_or_else(|error| error.is_not_found(), |_| true)
    }

    /// Seals and stores JSON under the hash of the stored bytes.
    pub(crate) async fn save(&self, kind: FileKind, json: &[u8]) -> Result<Id> {
        let sealed = unpacked::seal(json, self.config.version, &self.key)
            .map_err(|error| RepositoryError::corrupt(kind.folder(), error.to_string()))?;
        let (id, sealed) = (Id::of(&sealed), Bytes::from(sealed));
        self.store.put(&kind.key_of(&id), sealed.clone()).await?;
        self.keep_cached(kind, id, &sealed);
        Ok(id)
    }

    /// Waits for the store, but not longer than until somebody asks to stop.
    pub(crate) fn wait<T>(&self, cancel: &Cancel, work: impl Future<Output = Result<T>>) -> Result<T> {
        wait(&self.runtime, cancel, work)
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

/// The same before there is a repository.
pub(crate) fn wait<T>(runtime: &Handle, cancel: &Cancel, work: impl Future<Output = Result<T>>) -> Result<T> {
    runtime.block_on(async {
        tokio::select! {
            done = work => done,
            () = cancelled(cancel) => Err(RepositoryError::Cancelled),
        }
    })
}

async fn cancelled(cancel: &Cancel) {
    while !cancel.is_cancelled() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Reads an object into memory, unless it has more bytes than this: then it answers with how many.
pub(crate) async fn get_at_most(store: &Store, key: &str, most: u64) -> Result<Result<Bytes, u64>, StoreError> {
    let mut reader = store.reader(key).await?;
    let size = reader.info().size;
    if size > most {
        return Ok(Err(size));
    }
    let mut content = BytesMut::with_capacity(usize::try_from(size).unwrap_or(0));
    while let Some(piece) = reader.try_next().await? {
        content.extend_from_slice(&piece);
    }
    Ok(Ok(content.freeze()))
}

/// In words, why something is not read.
pub(crate) fn too_large(size: u64) -> String {
    format!("it has {size} bytes: too many to be one, so it was not read")
}

fn is_gone(result: &Result<Bytes>) -> bool {
    matches!(result, Err(RepositoryError::Store(StoreError::NotFound { .. })))
}

pub(crate) fn listed(info: &ObjectInfo) -> Option<Listed> {
    let name = info.key.rsplit('/').next()?;
    Id::parse(name).map(|id| Listed { id, size: info.size, modified: info.modified })
}
