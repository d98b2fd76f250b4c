//! A store that stops at a chosen write, as if the process had been killed there.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

/// Lets so many writes happen and then nothing at all, neither writes nor deletes.
#[derive(Debug, Clone)]
pub struct Frozen {
    inner: Arc<dyn ObjectStore>,
    left: Arc<AtomicUsize>,
}

impl Frozen {
    pub fn after(inner: Arc<dyn ObjectStore>, writes: usize) -> Self {
        Self { inner, left: Arc::new(AtomicUsize::new(writes)) }
    }

    /// How many writes are still allowed.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }

    fn spend(&self) -> Result<()> {
        let spent = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        spent.map(drop).map_err(|_| refused())
    }
}

fn refused() -> object_store::Error {
    object_store::Error::Generic { store: "Frozen", source: "killed".into() }
}

impl fmt::Display for Frozen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Frozen")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Frozen {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.spend()?;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(refused())
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        if self.left() == 0 {
            return locations.map(|_| Err(refused())).boxed();
        }
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(refused())
    }
}
