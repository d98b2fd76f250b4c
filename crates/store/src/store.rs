//! The store: every operation validates its key and maps provider errors to [`StoreError`].

use std::fmt;
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::signer::{Method, Signer};
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, TagSet,
};
use url::Url;

use crate::transfer_attempts::{PartRetryPolicy, TransferAttempts};
use crate::watchdog::{Observer, ObserverGuard, Observers};
use crate::{Location, Reader, Result, StoreError, Tuning, Upload, provider, uncached};

/// A bucket, container or directory of objects. Cloning is cheap and shares connections.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
    prefix: Path,
}

pub(crate) struct Inner {
    pub objects: Arc<dyn ObjectStore>,
    pub signer: Option<Arc<dyn Signer>>,
    pub name: String,
    pub tags: TagSet,
    pub observers: Arc<Observers>,
    pub tuning: Tuning,
    /// The local directory, if the store is one.
    pub files: Option<LocalFileSystem>,
}

/// The metadata of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Key below the store's prefix.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// When it was written, by the store's clock.
    pub modified: SystemTime,
}

impl fmt::Debug for Store {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Store").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a local directory and creates it if it is missing. Writes are flushed to the disk before they are visible.
    pub fn directory(path: impl AsRef<FilePath>, prefix: &str) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        std::fs::create_dir_all(path).map_err(|error| StoreError::from_io(&error, ".", &name))?;
        let objects = LocalFileSystem::new_with_prefix(path)
            .map_err(|error| StoreError::from_provider(&error, ".", &name))?
            .with_fsync(true);
        let inner = Inner::new(Arc::new(objects.clone()), name);
        Self::assemble(Inner { files: Some(objects), ..inner }, prefix)
    }

    /// Opens the store of a location. Sends nothing: an unreachable store fails at the first call.
    pub fn open(location: &Location) -> Result<Self> {
        provider::open(location)
    }

    /// Creates an empty store in memory, for tests and dry runs.
    pub fn memory() -> Self {
        let inner = Inner::new(Arc::new(InMemory::new()), "memory".into());
        Self { inner: Arc::new(inner), prefix: Path::default() }
    }

    /// Wraps another object store, for example one that injects faults. `name` identifies it in messages.
    pub fn from_objects(objects: Arc<dyn ObjectStore>, name: String, prefix: &str) -> Result<Self> {
        Self::assemble(Inner::new(objects, name), prefix)
    }

    /// Wraps an object store that can also presign URLs.
    pub fn from_signing_objects<S: ObjectStore + Signer>(objects: Arc<S>, name: String, prefix: &str) -> Result<Self> {
        let signer: Arc<dyn Signer> = Arc::clone(&objects) as Arc<dyn Signer>;
        Self::assemble(Inner { signer: Some(signer), ..Inner::new(objects, name) }, prefix)
    }

    pub(crate) fn assemble(inner: Inner, prefix: &str) -> Result<Self> {
        let trimmed = prefix.trim_matches('/');
        let prefix = Path::parse(trimmed).map_err(|error| StoreError::InvalidLocation {
            location: inner.name.clone(),
            cause: format!("prefix {trimmed:?}: {error}"),
        })?;
        Ok(Self { inner: Arc::new(inner), prefix })
    }

    /// The same store with `folder` appended to its prefix.
    pub fn with_prefix(&self, folder: &str) -> Result<Self> {
        Ok(Self { inner: self.inner.clone(), prefix: self.path(folder)? })
    }

    /// The name of this store in messages.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Notifies `observer` of the waits of this store and its clones until the returned guard is dropped.
    pub fn observe(&self, observer: Arc<dyn Observer>) -> ObserverGuard {
        self.inner.observers.add(observer)
    }

    /// Writes or replaces an object. Either all of it is visible afterwards or nothing changed.
    ///
    /// In a directory, large content that is aligned to [`ALIGNMENT`](crate::ALIGNMENT) is written without a copy.
    pub async fn put(&self, key: &str, content: impl Into<Bytes>) -> Result<()> {
        let content = content.into();
        if content.len() >= uncached::MIN_SIZE
            && let Some(file) = self.local_file(key)
            && self.put_uncached(file, content.clone(), key).await?
        {
            return Ok(());
        }
        self.put_payload(key, content.into()).await
    }

    async fn put_uncached(&self, file: std::path::PathBuf, content: Bytes, key: &str) -> Result<bool> {
        let written = tokio::task::spawn_blocking(move || uncached::write(&file, &content)).await;
        written.map_err(std::io::Error::other).flatten().map_err(|error| StoreError::from_io(&error, key, self.name()))
    }

    pub(crate) async fn put_payload(&self, key: &str, content: PutPayload) -> Result<()> {
        let path = self.path(key)?;
        let put = || {
            let options = PutOptions { tags: self.inner.tags.clone(), ..PutOptions::default() };
            self.inner.objects.put_opts(&path, content.clone(), options)
        };
        self.retry_transfer(key, put).await.map(drop)
    }

    /// Writes an object only if the key does not exist; returns whether it was written. Some servers overwrite silently: check
    /// [`Store::supports_put_if_absent`] before relying on it.
    pub async fn put_if_absent(&self, key: &str, content: impl Into<Bytes>) -> Result<bool> {
        let path = self.path(key)?;
        let options = PutOptions { mode: PutMode::Create, tags: self.inner.tags.clone(), ..PutOptions::default() };
        match self.inner.objects.put_opts(&path, content.into().into(), options).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(self.error_for(&error, key)),
        }
    }

    /// Probes whether this server refuses a conditional put of an existing key. Some overwrite silently.
    pub async fn supports_put_if_absent(&self) -> Result<bool> {
        let key = format!(".plimsoll-probe-{}", uuid::Uuid::new_v4());
        self.put(&key, &b"first"[..]).await?;
        let second = self.put_if_absent(&key, &b"second"[..]).await;
        let is_kept = self.get(&key).await.map(|content| content == b"first"[..]);
        self.delete(&key).await?;
        match second {
            Ok(written) => Ok(!written && is_kept?),
            Err(StoreError::Unsupported { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads a whole object into memory.
    pub async fn get(&self, key: &str) -> Result<Bytes> {
        let path = self.path(key)?;
        self.retry_transfer(key, || async { self.inner.objects.get(&path).await?.bytes().await }).await
    }

    /// Reads a whole object into memory, unless it is larger than `limit`. For objects that others may have written.
    pub async fn get_at_most(&self, key: &str, limit: u64) -> Result<Bytes> {
        let too_large =
            |size| StoreError::TooLarge { key: key.to_owned(), location: self.inner.name.clone(), size, limit };
        let mut chunks = self.reader(key).await?;
        let announced = chunks.info().size;
        if announced > limit {
            return Err(too_large(announced));
        }
        let mut content = BytesMut::new();
        while let Some(chunk) = chunks.try_next().await? {
            content.extend_from_slice(&chunk);
            if content.len() as u64 > limit {
                return Err(too_large(content.len() as u64));
            }
        }
        Ok(content.freeze())
    }

    /// Reads a range of an object. A range past the end is an error.
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let path = self.path(key)?;
        let requested = range.end.saturating_sub(range.start);
        if requested == 0 {
            return Ok(Bytes::new());
        }
        let read = self.retry_transfer(key, || self.inner.objects.get_range(&path, range.clone())).await?;
        if read.len() as u64 == requested {
            return Ok(read);
        }
        let cause = format!("received {} of {requested} bytes of a range", read.len());
        Err(StoreError::Unavailable { key: key.into(), location: self.inner.name.clone(), cause })
    }

    /// The path of an object's file, if the store is a local directory: for callers that read into their own buffers. The
    /// file may not exist and must only be read.
    pub fn local_file(&self, key: &str) -> Option<std::path::PathBuf> {
        let files = self.inner.files.as_ref()?;
        files.path_to_filesystem(&self.path(key).ok()?).ok()
    }

    /// Streams an object.
    pub async fn reader(&self, key: &str) -> Result<Reader> {
        let path = self.path(key)?;
        let transfer = Arc::<TransferAttempts>::default();
        let result =
            transfer.scope(self.inner.objects.get(&path)).await.map_err(|error| self.error_for(&error, key))?;
        let info = self.info(&result.meta);
        Ok(Reader::new(result, info, self.clone(), key, transfer))
    }

    /// Starts a streamed upload of an object.
    #[expect(clippy::unused_async, reason = "callers need not know that nothing is sent before the first full part")]
    pub async fn upload(&self, key: &str) -> Result<Upload> {
        Ok(Upload::new(self.clone(), key.to_owned(), self.path(key)?))
    }

    /// All objects below a folder, in no particular order. `prefix` ends at a `/`: `a/b` does not list `a/bc`.
    pub fn list(&self, prefix: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        let path = match self.folder(prefix) {
            Ok(path) => path,
            Err(error) => return futures::stream::once(async { Err(error) }).boxed(),
        };
        let (store, requested) = (self.clone(), prefix.to_owned());
        let listed = self.inner.objects.list(path.as_ref());
        listed
            .map(move |entry| entry.map(|meta| store.info(&meta)).map_err(|error| store.error_for(&error, &requested)))
            .try_filter(|info| std::future::ready(!info.key.is_empty()))
            .boxed()
    }

    /// The names of the folders directly below a folder, sorted.
    pub async fn list_directories(&self, prefix: &str) -> Result<Vec<String>> {
        let path = self.folder(prefix)?;
        match self.inner.objects.list_with_delimiter(path.as_ref()).await {
            Ok(listed) => Ok(sorted_names(listed.common_prefixes.iter().filter_map(Path::filename))),
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(self.error_for(&error, prefix)),
        }
    }

    /// Reads the metadata of an object.
    pub async fn head(&self, key: &str) -> Result<ObjectInfo> {
        let path = self.path(key)?;
        let meta = self.inner.objects.head(&path).await.map_err(|error| self.error_for(&error, key))?;
        Ok(self.info(&meta))
    }

    /// Whether there is an object under this key.
    pub async fn exists(&self, key: &str) -> Result<bool> {
        match self.head(key).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object. Succeeds if it does not exist.
    pub async fn delete(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        match self.inner.objects.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.error_for(&error, key)),
        }
    }

    /// Deletes all objects below a folder and returns how many there were.
    pub async fn delete_prefix(&self, prefix: &str) -> Result<u64> {
        let path = self.folder(prefix)?;
        let listed = self.inner.objects.list(path.as_ref()).map_ok(|meta| meta.location).boxed();
        let mut deleted = 0;
        let mut results = self.inner.objects.delete_stream(listed);
        while let Some(result) = results.next().await {
            match result {
                Ok(_) => deleted += 1,
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.error_for(&error, prefix)),
            }
        }
        Ok(deleted)
    }

    /// A URL that grants read access to the object for a limited time; `None` if the provider cannot presign.
    pub async fn presign(&self, key: &str, valid_for: Duration) -> Result<Option<Url>> {
        let path = self.path(key)?;
        let Some(signer) = &self.inner.signer else { return Ok(None) };
        let url = signer.signed_url(Method::GET, &path, valid_for).await;
        url.map(Some).map_err(|error| self.error_for(&error, key))
    }

    pub(crate) async fn create_multipart(
        &self,
        path: &Path,
        key: &str,
    ) -> Result<Box<dyn object_store::MultipartUpload>> {
        let options = PutMultipartOptions { tags: self.inner.tags.clone(), ..PutMultipartOptions::default() }
            .with_retry_policy(Arc::new(PartRetryPolicy(self.inner.tuning.clone())));
        let created = self.inner.objects.put_multipart_opts(path, options).await;
        created.map_err(|error| self.error_for(&error, key))
    }

    /// Restarts a transfer that failed after bytes had moved. `work` must be idempotent.
    async fn retry_transfer<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        key: &str,
        work: impl Fn() -> F,
    ) -> Result<T> {
        let transfer = Arc::<TransferAttempts>::default();
        loop {
            match transfer.scope(work()).await {
                Ok(done) => return Ok(done),
                Err(_) if transfer.pause_before_retry(&self.inner.tuning).await => {}
                Err(error) => return Err(self.error_for(&error, key).after_attempts(transfer.failed_attempts())),
            }
        }
    }

    pub(crate) fn objects(&self) -> &dyn ObjectStore {
        self.inner.objects.as_ref()
    }

    pub(crate) fn tuning(&self) -> &Tuning {
        &self.inner.tuning
    }

    pub(crate) fn error_for(&self, error: &object_store::Error, key: &str) -> StoreError {
        StoreError::from_provider(error, key, &self.inner.name)
    }

    fn path(&self, key: &str) -> Result<Path> {
        let invalid =
            |cause: String| StoreError::InvalidKey { key: key.to_owned(), location: self.inner.name.clone(), cause };
        let parsed = Path::parse(key).map_err(|error| invalid(error.to_string()))?;
        if parsed.as_ref().is_empty() || key.starts_with('/') || key.ends_with('/') {
            return Err(invalid("the key is empty or starts or ends with a slash".into()));
        }
        Ok(self.prefix.parts().chain(parsed.parts()).collect())
    }

    fn folder(&self, prefix: &str) -> Result<Option<Path>> {
        match prefix.trim_end_matches('/') {
            "" if self.prefix.as_ref().is_empty() => Ok(None),
            "" => Ok(Some(self.prefix.clone())),
            folder => self.path(folder).map(Some),
        }
    }

    fn info(&self, meta: &ObjectMeta) -> ObjectInfo {
        let path = meta.location.as_ref();
        let key = path.strip_prefix(self.prefix.as_ref()).unwrap_or(path).trim_start_matches('/');
        ObjectInfo { key: key.to_owned(), size: meta.size, modified: meta.last_modified.into() }
    }
}

impl Inner {
    pub(crate) fn new(objects: Arc<dyn ObjectStore>, name: String) -> Self {
        let (tags, observers, tuning) = (TagSet::default(), Arc::default(), Tuning::default());
        Self { objects, signer: None, name, tags, observers, tuning, files: None }
    }
}

fn sorted_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort();
    names
}
