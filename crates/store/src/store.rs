//! The store itself: every operation, its key checked and its failure named.

use std::fmt;
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::signer::{Method, Signer};
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, TagSet,
};
use url::Url;

use crate::again::{Course, PartsAgain};
use crate::watch::{Observer, Observers, Observing};
use crate::{Location, Reader, Result, StoreError, Tuning, Upload, provider, uncached};

/// One place that keeps objects. Cloning is cheap and shares connections.
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
    /// The same objects as files, where they are files of this machine.
    pub files: Option<LocalFileSystem>,
}

/// What a store knows about an object without reading it.
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
    /// A directory of this machine, made if it is missing. Writes are flushed to the disk before they are visible.
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

    /// Opens what a location describes. Nothing is sent: whether it can be reached shows at the first call.
    pub fn open(location: &Location) -> Result<Self> {
        provider::open(location)
    }

    /// Objects in memory only, for tests and dry runs.
    pub fn memory() -> Self {
        let inner = Inner::new(Arc::new(InMemory::new()), "memory".into());
        Self { inner: Arc::new(inner), prefix: Path::default() }
    }

    /// Any other object store, for example one that injects faults. `name` is what messages call it.
    pub fn from_objects(objects: Arc<dyn ObjectStore>, name: String, prefix: &str) -> Result<Self> {
        Self::assemble(Inner::new(objects, name), prefix)
    }

    /// The same for one that can also sign links.
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

    /// The same store, everything one level deeper.
    pub fn below(&self, folder: &str) -> Result<Self> {
        Ok(Self { inner: self.inner.clone(), prefix: self.path(folder)? })
    }

    /// What messages call this store.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Tells `observer` what this store (with its clones) waits for, until the returned value is dropped.
    pub fn observe(&self, observer: Arc<dyn Observer>) -> Observing {
        self.inner.observers.add(observer)
    }

    /// Writes an object, replacing what is there. Either all of it is visible afterwards or nothing changed.
    ///
    /// Large content of a directory that begins at a multiple of [`ALIGNMENT`](crate::ALIGNMENT) is written without a copy.
    pub async fn put(&self, key: &str, content: impl Into<Bytes>) -> Result<()> {
        let content = content.into();
        if content.len() >= uncached::FROM
            && let Some(file) = self.file_of(key)
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
        self.keep_at(key, put).await.map(drop)
    }

    /// Writes an object only if the key is free; says whether it was. Not every server keeps the promise: ask
    /// [`Store::honours_put_if_absent`] before relying on it.
    pub async fn put_if_absent(&self, key: &str, content: impl Into<Bytes>) -> Result<bool> {
        let path = self.path(key)?;
        let options = PutOptions { mode: PutMode::Create, tags: self.inner.tags.clone(), ..PutOptions::default() };
        match self.inner.objects.put_opts(&path, content.into().into(), options).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(self.failed(&error, key)),
        }
    }

    /// Tries out whether this server refuses to overwrite when asked to: some silently do not.
    pub async fn honours_put_if_absent(&self) -> Result<bool> {
        let key = format!(".plimsoll-probe-{}", uuid::Uuid::new_v4());
        self.put(&key, &b"first"[..]).await?;
        let second = self.put_if_absent(&key, &b"second"[..]).await;
        let kept = self.get(&key).await.map(|content| content == b"first"[..]);
        self.delete(&key).await?;
        match second {
            Ok(written) => Ok(!written && kept?),
            Err(StoreError::Unsupported { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads a whole object into memory.
    pub async fn get(&self, key: &str) -> Result<Bytes> {
        let path = self.path(key)?;
        self.keep_at(key, || async { self.inner.objects.get(&path).await?.bytes().await }).await
    }

    /// Reads a part of an object. A range past the end is an error.
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let path = self.path(key)?;
        let wanted = range.end.saturating_sub(range.start);
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        let read = self.keep_at(key, || self.inner.objects.get_range(&path, range.clone())).await?;
        if read.len() as u64 == wanted {
            return Ok(read);
        }
        let cause = format!("{} of {wanted} bytes of a range", read.len());
        Err(StoreError::Unavailable { key: key.into(), location: self.inner.name.clone(), cause })
    }

    /// The file that holds an object, where the store is a directory of this machine: for readers who want to choose
    /// where the bytes go. It need not exist, and must only be read.
    pub fn file_of(&self, key: &str) -> Option<std::path::PathBuf> {
        let files = self.inner.files.as_ref()?;
        files.path_to_filesystem(&self.path(key).ok()?).ok()
    }

    /// Reads an object piece by piece.
    pub async fn reader(&self, key: &str) -> Result<Reader> {
        let path = self.path(key)?;
        let course = Arc::<Course>::default();
        let result = course.follow(self.inner.objects.get(&path)).await.map_err(|error| self.failed(&error, key))?;
        let info = self.info(&result.meta);
        Ok(Reader::new(result, info, self.clone(), key, course))
    }

    /// Starts writing an object piece by piece.
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
        let (store, asked) = (self.clone(), prefix.to_owned());
        let listed = self.inner.objects.list(path.as_ref());
        listed
            .map(move |entry| entry.map(|meta| store.info(&meta)).map_err(|error| store.failed(&error, &asked)))
            .try_filter(|info| std::future::ready(!info.key.is_empty()))
            .boxed()
    }

    /// The names of the folders directly below a folder, sorted.
    pub async fn list_directories(&self, prefix: &str) -> Result<Vec<String>> {
        let path = self.folder(prefix)?;
        match self.inner.objects.list_with_delimiter(path.as_ref()).await {
            Ok(listed) => Ok(sorted_names(listed.common_prefixes.iter().filter_map(Path::filename))),
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(self.failed(&error, prefix)),
        }
    }

    /// What is known about an object.
    pub async fn head(&self, key: &str) -> Result<ObjectInfo> {
        let path = self.path(key)?;
        let meta = self.inner.objects.head(&path).await.map_err(|error| self.failed(&error, key))?;
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

    /// Deletes an object. One that is not there counts as deleted.
    pub async fn delete(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        match self.inner.objects.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(&error, key)),
        }
    }

    /// Deletes everything below a folder and says how many objects that were.
    pub async fn delete_prefix(&self, prefix: &str) -> Result<u64> {
        let path = self.folder(prefix)?;
        let found = self.inner.objects.list(path.as_ref()).map_ok(|meta| meta.location).boxed();
        let mut deleted = 0;
        let mut results = self.inner.objects.delete_stream(found);
        while let Some(result) = results.next().await {
            match result {
                Ok(_) => deleted += 1,
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failed(&error, prefix)),
            }
        }
        Ok(deleted)
    }

    /// A link with which anybody can read the object for a while; none where the provider has no such thing.
    pub async fn presign(&self, key: &str, valid_for: Duration) -> Result<Option<Url>> {
        let path = self.path(key)?;
        let Some(signer) = &self.inner.signer else { return Ok(None) };
        let url = signer.signed_url(Method::GET, &path, valid_for).await;
        url.map(Some).map_err(|error| self.failed(&error, key))
    }

    pub(crate) async fn begin_parts(&self, path: &Path, key: &str) -> Result<Box<dyn object_store::MultipartUpload>> {
        let options = PutMultipartOptions { tags: self.inner.tags.clone(), ..PutMultipartOptions::default() }
            .with_retry_policy(Arc::new(PartsAgain(self.inner.tuning.clone())));
        let begun = self.inner.objects.put_multipart_opts(path, options).await;
        begun.map_err(|error| self.failed(&error, key))
    }

    /// Begins again what broke off although it moved. `work` must leave nothing behind that keeps it from being repeated.
    async fn keep_at<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        key: &str,
        work: impl Fn() -> F,
    ) -> Result<T> {
        let course = Arc::<Course>::default();
        loop {
            match course.follow(work()).await {
                Ok(done) => return Ok(done),
                Err(_) if course.goes_on(&self.inner.tuning).await => {}
                Err(error) => return Err(self.failed(&error, key).after(course.tries())),
            }
        }
    }

    pub(crate) fn objects(&self) -> &dyn ObjectStore {
        self.inner.objects.as_ref()
    }

    pub(crate) fn tuning(&self) -> &Tuning {
        &self.inner.tuning
    }

    pub(crate) fn failed(&self, error: &object_store::Error, key: &str) -> StoreError {
        StoreError::from_provider(error, key, &self.inner.name)
    }

    fn path(&self, key: &str) -> Result<Path> {
        let invalid =
            |cause: String| StoreError::InvalidKey { key: key.to_owned(), location: self.inner.name.clone(), cause };
        let parsed = Path::parse(key).map_err(|error| invalid(error.to_string()))?;
        if parsed.as_ref().is_empty() || key.starts_with('/') || key.ends_with('/') {
            return Err(invalid("it is empty or starts or ends with a slash".into()));
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
        let whole = meta.location.as_ref();
        let key = whole.strip_prefix(self.prefix.as_ref()).unwrap_or(whole).trim_start_matches('/');
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
