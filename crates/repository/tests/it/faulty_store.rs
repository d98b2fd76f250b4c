//! Fault injection: a wrapper around a store with hooks before and after each request.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

/// The hooks of a fault.
#[async_trait::async_trait]
pub trait Fault: Send + Sync + 'static {
    /// Before an object is written; an error prevents it.
    async fn before_put(&self, _path: &Path, _payload: &PutPayload) -> Result<()> {
        Ok(())
    }
    /// Before an object or a part of it is read; an error prevents it.
    fn before_get(&self, _path: &Path) -> Result<()> {
        Ok(())
    }
    /// After it was written.
    fn after_put(&self) {}
    /// Before objects are listed.
    fn before_list(&self, _prefix: Option<&Path>) {}
    /// Before an object is deleted; an error prevents it.
    fn before_delete(&self, _path: &Path, _exists: bool) -> Result<()> {
        Ok(())
    }
    /// After it was deleted.
    fn after_delete(&self) {}
}

/// A store with a fault.
#[derive(Clone)]
pub struct FaultyStore {
    inner: Arc<dyn ObjectStore>,
    fault: Arc<dyn Fault>,
}

impl FaultyStore {
    pub fn new(inner: Arc<dyn ObjectStore>, fault: Arc<dyn Fault>) -> Arc<Self> {
        Arc::new(Self { inner, fault })
    }
}

pub fn refused(message: &'static str) -> object_store::Error {
    object_store::Error::Generic { store: "FaultyStore", source: message.into() }
}

pub fn denied(path: &Path) -> object_store::Error {
    object_store::Error::PermissionDenied { path: path.to_string(), source: "append-only".into() }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("FaultyStore")
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("FaultyStore")
    }
}

#[async_trait::async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.fault.before_put(location, &payload).await?;
        let done = self.inner.put_opts(location, payload, options).await;
        self.fault.after_put();
        done
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(refused("not used here"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.fault.before_get(location)?;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let each = move |location: Result<Path>| {
            let this = this.clone();
            async move {
                let location = location?;
                let exists = this.inner.get_opts(&location, GetOptions::default()).await.is_ok();
                this.fault.before_delete(&location, exists)?;
                let one = futures::stream::once(std::future::ready(Ok(location.clone()))).boxed();
                let done = this.inner.delete_stream(one).next().await.unwrap_or(Ok(location));
                this.fault.after_delete();
                done
            }
        };
        locations.then(each).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.fault.before_list(prefix);
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(refused("not used here"))
    }
}

/// Fails all writes and deletes after this many writes.
pub struct FailingAfter(AtomicUsize);

impl FailingAfter {
    pub fn after(writes: usize) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(writes)))
    }
}

#[async_trait::async_trait]
impl Fault for FailingAfter {
    async fn before_put(&self, _: &Path, _: &PutPayload) -> Result<()> {
        let spent = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        spent.map(drop).map_err(|_| refused("killed"))
    }

    fn before_delete(&self, _: &Path, _: bool) -> Result<()> {
        if self.0.load(Ordering::SeqCst) == 0 { Err(refused("killed")) } else { Ok(()) }
    }
}

/// Kills this process at a write to a directory, as `kill -9`.
pub struct KillAtWrite {
    /// The directory behind the store.
    pub root: PathBuf,
    /// The number of the write, from 0; deletes count too.
    pub at: usize,
    /// Kill during the write, with half of the bytes in a temporary file; otherwise right after it.
    pub in_the_middle: bool,
    /// Writes so far.
    pub count: AtomicUsize,
}

impl KillAtWrite {
    fn die() {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("kills");
    }
}

#[async_trait::async_trait]
impl Fault for KillAtWrite {
    async fn before_put(&self, path: &Path, payload: &PutPayload) -> Result<()> {
        if self.in_the_middle && self.count.load(Ordering::SeqCst) == self.at {
            let file = self.root.join(format!("{path}#1"));
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            let content: Vec<u8> = payload.iter().flat_map(|part| part.to_vec()).collect();
            std::fs::write(file, &content[..content.len() / 2]).expect("writes");
            Self::die();
        }
        Ok(())
    }

    fn after_put(&self) {
        if self.count.fetch_add(1, Ordering::SeqCst) == self.at {
            Self::die();
        }
    }

    fn after_delete(&self) {
        self.after_put();
    }
}

/// Denies deletes.
pub struct AppendOnly {
    /// Deny only deletes of existing objects, as a directory; otherwise of any key, as S3.
    pub only_existing: bool,
}

impl Fault for AppendOnly {
    fn before_delete(&self, path: &Path, exists: bool) -> Result<()> {
        if exists || !self.only_existing { Err(denied(path)) } else { Ok(()) }
    }
}

/// Fails reads of keys that contain this text, or of all keys on request.
pub struct UnreadableKeys {
    pub key: String,
    pub error: fn(&Path) -> object_store::Error,
    pub everything: AtomicBool,
}

impl Fault for UnreadableKeys {
    fn before_get(&self, path: &Path) -> Result<()> {
        let withheld = self.everything.load(Ordering::SeqCst) || path.as_ref().contains(&self.key);
        if withheld { Err((self.error)(path)) } else { Ok(()) }
    }
}

/// Blocks writes to a folder until they are released.
pub struct BlockedWrites {
    folder: &'static str,
    waits: AtomicBool,
    /// Never has a permit; closing it releases all writes.
    gate: tokio::sync::Semaphore,
}

impl BlockedWrites {
    pub fn of(folder: &'static str) -> Arc<Self> {
        Arc::new(Self { folder, waits: AtomicBool::new(false), gate: tokio::sync::Semaphore::new(0) })
    }

    /// Whether a write is blocked.
    pub fn is_blocking(&self) -> bool {
        self.waits.load(Ordering::SeqCst)
    }

    pub fn release(&self) {
        self.gate.close();
    }
}

#[async_trait::async_trait]
impl Fault for BlockedWrites {
    async fn before_put(&self, path: &Path, _: &PutPayload) -> Result<()> {
        if path.as_ref().starts_with(self.folder) {
            self.waits.store(true, Ordering::SeqCst);
            let _ = self.gate.acquire().await;
        }
        Ok(())
    }
}

/// Fails all writes and deletes after a number of them, until it is set again. The failure is not retried.
pub struct StoppableWrites {
    remaining: AtomicUsize,
}

impl StoppableWrites {
    pub fn unlimited() -> Arc<Self> {
        Arc::new(Self { remaining: AtomicUsize::new(usize::MAX) })
    }

    pub fn stop_after(&self, writes: usize) {
        self.remaining.store(writes, Ordering::SeqCst);
    }

    /// Whether a write failed since the last call of `stop_after`.
    pub fn has_stopped(&self) -> bool {
        self.remaining.load(Ordering::SeqCst) == 0
    }

    fn spend(&self, path: &Path) -> Result<()> {
        let spent = self.remaining.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
            usize::MAX => Some(left),
            left => left.checked_sub(1),
        });
        spent
            .map(drop)
            .map_err(|_| object_store::Error::Unauthenticated { path: path.to_string(), source: "killed".into() })
    }
}

#[async_trait::async_trait]
impl Fault for StoppableWrites {
    async fn before_put(&self, path: &Path, _: &PutPayload) -> Result<()> {
        self.spend(path)
    }

    fn before_delete(&self, path: &Path, _: bool) -> Result<()> {
        self.spend(path)
    }
}
