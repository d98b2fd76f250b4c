//! An open repository: access to its files, with encryption and verification.

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
use crate::memory::{MemoryBudget, MemoryLimit};
use crate::prefetch::Prefetched;
use crate::{RepositoryError, Result};

/// The kinds of files that are named by their hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

    /// The maximum size of a valid file. A larger one would only exhaust the memory, and anyone with write access to the store can
    /// create it.
    pub(crate) fn max_size(self) -> u64 {
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
pub(crate) struct ListedFile {
    pub id: Id,
    pub size: u64,
    pub modified: std::time::SystemTime,
}

/// The ID and decrypted content of a file, or its error.
pub(crate) type LoadedFile = (Id, Result<Vec<u8>>);

/// How a repository is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The cache directory of index and snapshot files. Any number of processes and repositories may share it.
    pub cache: Option<PathBuf>,
    /// Open without a readable `config`, to restore data: nothing can be written then.
    pub rescue: bool,
    /// Request the listings of a backup or restore together with the config, to save round trips. For a repository that is used at
    /// once and for one operation only.
    pub prefetch: bool,
    /// Cancels the calls without a `Cancel` of their own, including opening.
    pub cancel: Cancel,
    /// The clock of our own lock; `None` for the system's. For tests.
    pub clock: Option<Clock>,
    /// The memory of backups, restores and checks.
    pub memory: MemoryLimit,
    /// The UID of the pod whose only container runs this process. The next container of the pod recognizes locks of this process
    /// as stale.
    pub pod: Option<String>,
}

/// The maximum number of small files to load concurrently.
pub(crate) const MAX_CONCURRENT_LOADS: usize = 8;

/// An open repository.
pub struct Repository {
    pub(crate) store: Store,
    pub(crate) runtime: Handle,
    pub(crate) key: Key,
    pub(crate) config: Config,
    pub(crate) options: OpenOptions,
    prefetched: Prefetched,
    /// Set when the store denied a delete.
    pub(crate) denies_deletes: AtomicBool,
}

impl std::fmt::Debug for Repository {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Repository").field("store", &self.store).field("id", &self.config.id).finish_non_exhaustive()
    }
}

impl Repository {
    pub(crate) fn assemble(store: Store, runtime: Handle, key: Key, config: Config, options: OpenOptions) -> Self {
        let (prefetched, denies_deletes) = Default::default();
        Self { store, runtime, key, config, options, prefetched, denies_deletes }
    }

    /// The same repository with requested listings.
    pub(crate) fn with_prefetched(self, prefetched: Prefetched) -> Self {
        Self { prefetched, ..self }
    }

    /// The repository's random ID.
    pub fn id(&self) -> Id {
        self.config.id
    }

    /// The format version, 1 or 2; 1 is read-only. 0 if the config is unknown.
    pub fn version(&self) -> u32 {
        self.config.version
    }

    /// The memory of one operation.
    pub(crate) fn memory(&self) -> MemoryBudget {
        MemoryBudget::new(self.options.memory)
    }

    pub(crate) fn list(&self, kind: FileKind, cancel: &Cancel) -> Result<Vec<ListedFile>> {
        self.list_where(kind, cancel, |_| true)
    }

    /// Lists the files that match. There may be very many, so the others are dropped at once.
    pub(crate) fn list_where(
        &self,
        kind: FileKind,
        cancel: &Cancel,
        predicate: impl Fn(&ListedFile) -> bool,
    ) -> Result<Vec<ListedFile>> {
        if let Some(listing) = self.prefetched.take(kind) {
            let ended = self.wait(cancel, async { Ok(listing.await) })?;
            let files = ended.map_err(|error| RepositoryError::corrupt(kind.folder(), error.to_string()))??;
            return Ok(files.into_iter().filter(predicate).collect());
        }
        let predicate = |info: ObjectInfo| std::future::ready(Ok(parse_listed(&info).filter(&predicate)));
        self.wait(cancel, async { Ok(self.store.list(kind.folder()).try_filter_map(predicate).try_collect().await?) })
    }

    /// Loads and decrypts files concurrently.
    pub(crate) fn load_each(
        &self,
        kind: FileKind,
        ids: impl Iterator<Item = Id>,
        cancel: &Cancel,
    ) -> Result<Vec<LoadedFile>> {
        let mut loaded = Vec::new();
        self.each_file(kind, Source::Store, ids, cancel, |id, json| {
            loaded.push((id, json));
            Ok(())
        })?;
        Ok(loaded)
    }

    /// Passes the decrypted content or the error of each file to `on_file`. Files are loaded concurrently and decompressed one after
    /// the other, because they are many times as large then.
    pub(crate) fn each_file(
        &self,
        kind: FileKind,
        source: Source,
        ids: impl Iterator<Item = Id>,
        cancel: &Cancel,
        mut on_file: impl FnMut(Id, Result<Vec<u8>>) -> Result<()>,
    ) -> Result<()> {
        let loads = ids.map(|id| async move { (id, self.load_from(source, kind, id).await) });
        let mut loads = futures::stream::iter(loads).buffer_unordered(MAX_CONCURRENT_LOADS);
        self.wait(cancel, async {
            while let Some((id, encrypted)) = loads.next().await {
                // A file that was deleted since the listing is skipped, as locks are. A missing index file is an error, because its blobs
                // would be missed silently.
                if kind == FileKind::Index || !is_deleted(&encrypted) {
                    on_file(id, encrypted.and_then(|encrypted| self.open_file(kind, id, &encrypted)))?;
                }
            }
            Ok(())
        })
    }

    pub(crate) async fn load(&self, kind: FileKind, id: Id) -> Result<Vec<u8>> {
        let encrypted = self.load_encrypted(kind, id).await?;
        self.open_file(kind, id, &encrypted)
    }

    pub(crate) fn open_file(&self, kind: FileKind, id: Id, encrypted: &[u8]) -> Result<Vec<u8>> {
        unpacked::decode(encrypted, &self.key).map_err(|cause| RepositoryError::corrupt(kind.key_of(&id), cause))
    }

    /// The stored bytes, verified against their ID; read again if they do not match.
    pub(crate) async fn load_encrypted(&self, kind: FileKind, id: Id) -> Result<Bytes> {
        let key = kind.key_of(&id);
        for _ in 0..2 {
            let read = self.read(&key, || get_limited(&self.store, &key, kind.max_size())).await?;
            let encrypted = read.map_err(|size| RepositoryError::corrupt(key.clone(), too_large(size)))?;
            if Id::of(&encrypted) == id {
                return Ok(encrypted);
            }
        }
        Err(RepositoryError::corrupt(key, "its hash does not match its ID"))
    }

    /// Reads a file or a part of it. If the store repeatedly fails for this file only, the file counts as damaged, so that the rest
    /// can still be restored.
    pub(crate) async fn read<T, F>(&self, key: &str, read: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        match read().await {
            Ok(content) => return Ok(content),
            Err(failure) if failure.is_not_found() || !self.is_responding().await => return Err(failure.into()),
            Err(_) => {}
        }
        read().await.map_err(|failure| match failure {
            StoreError::NotFound { .. } => failure.into(),
            failure => RepositoryError::corrupt(key, failure.to_string()),
        })
    }

    /// Whether the store responds to a small request.
    async fn is_responding(&self) -> bool {
        self.store.get("config").await.map_or_else(|error| error.is_not_found(), |_| true)
    }

    /// Encrypts JSON and stores it under the hash of the stored bytes.
    pub(crate) async fn save(&self, kind: FileKind, json: &[u8]) -> Result<Id> {
        let encrypted = unpacked::encode(json, self.config.version, &self.key)
            .map_err(|error| RepositoryError::corrupt(kind.folder(), error.to_string()))?;
        let (id, encrypted) = (Id::of(&encrypted), Bytes::from(encrypted));
        self.store.put(&kind.key_of(&id), encrypted.clone()).await?;
        self.cache_file(kind, id, &encrypted);
        Ok(id)
    }

    /// Waits for the store, until a cancel at most.
    pub(crate) fn wait<T>(&self, cancel: &Cancel, work: impl Future<Output = Result<T>>) -> Result<T> {
        wait(&self.runtime, cancel, work)
    }

    /// Rejects changes of a repository whose config is unknown.
    pub(crate) fn require_config(&self) -> Result<()> {
        if self.config.version > 0 {
            return Ok(());
        }
        let cause = "a repository without a config is read-only".into();
        Err(RepositoryError::Unsupported { location: self.store.name().into(), cause })
    }

    /// Rejects writes to a read-only repository.
    pub(crate) fn require_writable(&self) -> Result<()> {
        if self.config.version == 2 {
            return Ok(());
        }
        let cause = match self.config.version {
            1 => "format version 1 is read-only; upgrade it with restic migrate upgrade_repo_v2",
            _ => "a repository without a config is read-only",
        };
        let cause = cause.into();
        Err(RepositoryError::Unsupported { location: self.store.name().into(), cause })
    }
}

/// Waits for the store, until a cancel at most.
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

/// Reads an object into memory, or returns its size if it exceeds `max_size`.
pub(crate) async fn get_limited(store: &Store, key: &str, max_size: u64) -> Result<Result<Bytes, u64>, StoreError> {
    let mut reader = store.reader(key).await?;
    let size = reader.info().size;
    if size > max_size {
        return Ok(Err(size));
    }
    let mut content = BytesMut::with_capacity(usize::try_from(size).unwrap_or(0));
    while let Some(chunk) = reader.try_next().await? {
        content.extend_from_slice(&chunk);
    }
    Ok(Ok(content.freeze()))
}

/// The cause for a file that is too large to be read.
pub(crate) fn too_large(size: u64) -> String {
    format!("its size of {size} bytes exceeds the limit")
}

fn is_deleted(result: &Result<Bytes>) -> bool {
    matches!(result, Err(RepositoryError::Store(StoreError::NotFound { .. })))
}

pub(crate) fn parse_listed(info: &ObjectInfo) -> Option<ListedFile> {
    let name = info.key.rsplit('/').next()?;
    Id::parse(name).map(|id| ListedFile { id, size: info.size, modified: info.modified })
}
