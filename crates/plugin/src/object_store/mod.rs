//! An ObjectStore plugin as a [`Store`].
//!
//! The plugin protocol has no sizes and no conditional writes: the size of a small object is known after it has been read, lists
//! have names only, and conditional writes are errors.

#![expect(clippy::default_trait_access, reason = "the types belong to crates that this one does not depend on")]

mod location;
mod reader;
mod upload;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::signer::{Method as Verb, Signer};
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use tempfile::NamedTempFile;
use tokio::sync::{mpsc, oneshot};
use url::Url;

pub(crate) use self::location::credentials_file;
pub use self::location::{USE_PLUGIN_CONFIG_KEY, open_store};
use self::reader::ObjectReader;
use self::upload::StreamingUpload;
use crate::session::Session;
use crate::wire::{
    CREATE_SIGNED_URL, CreateSignedUrlRequest, DELETE_OBJECT, Empty, GET_OBJECT, LIST_COMMON_PREFIXES, LIST_OBJECTS,
    ListCommonPrefixesRequest, ListObjectsRequest, Method, OBJECT_EXISTS, ObjectRequest, PUT_OBJECT, PutObjectRequest,
};
use crate::{Error, Result};

/// Size of an upload chunk: well below the message size limit of plugins.
const CHUNK_SIZE: usize = 256 * 1024;
/// Bytes read before the size of an object is reported.
const READ_AHEAD: usize = 1 << 20;
/// Timeout of a request without object data.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(2);
/// Timeout of the upload of one object. The health of the process is checked meanwhile.
const UPLOAD_TIMEOUT: Duration = Duration::from_hours(12);
/// Maximum attempts of a request whose process exited.
const MAX_ATTEMPTS: usize = 3;

struct Inner {
    session: Arc<Session>,
    plugin: String,
    bucket: String,
    idle: Duration,
    _credentials: Option<NamedTempFile>,
}

/// The objects of a bucket, accessed through a plugin.
#[derive(Clone)]
struct PluginObjectStore(Arc<Inner>);

impl fmt::Debug for PluginObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginObjectStore").field("plugin", &self.0.plugin).finish_non_exhaustive()
    }
}

impl fmt::Display for PluginObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plugin {}", self.0.plugin)
    }
}

type StoreResult<T> = object_store::Result<T>;

impl From<Error> for object_store::Error {
    fn from(error: Error) -> Self {
        Self::Generic { store: "plugin", source: Box::new(error) }
    }
}

impl PluginObjectStore {
    fn object(&self, key: &str) -> ObjectRequest {
        ObjectRequest { plugin: self.0.plugin.clone(), bucket: self.0.bucket.clone(), key: key.to_owned() }
    }

    /// Calls a method, and repeats the call if the process exited. Only for calls that may be repeated.
    async fn call_with_retries<Input, Output>(&self, method: Method<Input, Output>, request: Input) -> Result<Output>
    where
        Input: prost::Message + crate::wire::PluginRequest + Clone + 'static,
        Output: prost::Message + Default + 'static,
    {
        let mut attempt = 1;
        loop {
            match self.0.session.call(method, request.clone(), REQUEST_TIMEOUT).await {
                Err(error) if error.is_retryable() && attempt < MAX_ATTEMPTS => attempt += 1,
                answer => return answer,
            }
        }
    }

    /// Plugins have no common error for a missing object: after a failed read, check whether the object exists.
    async fn not_found_or(&self, error: Error, path: &Path) -> object_store::Error {
        match self.call_with_retries(OBJECT_EXISTS, self.object(path.as_ref())).await {
            Ok(answer) if !answer.exists => {
                object_store::Error::NotFound { path: path.to_string(), source: Box::new(error) }
            }
            _ => error.into(),
        }
    }

    async fn read(&self, path: &Path) -> StoreResult<ObjectReader> {
        let mut attempt = 1;
        loop {
            match self.start_reading(path).await {
                Err(error) if error.is_retryable() && attempt < MAX_ATTEMPTS => attempt += 1,
                Err(error) => return Err(self.not_found_or(error, path).await),
                Ok(reader) => return Ok(reader),
            }
        }
    }

    async fn start_reading(&self, path: &Path) -> Result<ObjectReader> {
        let chunks = self
            .0
            .session
            .server_streaming(GET_OBJECT, self.object(path.as_ref()), self.0.idle.max(REQUEST_TIMEOUT))
            .await?;
        let mut rest = chunks.map_ok(|chunk| chunk.data).boxed();
        let mut first_bytes = BytesMut::new();
        while first_bytes.len() < READ_AHEAD {
            match rest.try_next().await? {
                Some(chunk) => first_bytes.extend_from_slice(&chunk),
                None => return Ok(ObjectReader { first_bytes: first_bytes.freeze(), rest: stream::empty().boxed() }),
            }
        }
        Ok(ObjectReader { first_bytes: first_bytes.freeze(), rest })
    }

    async fn send(&self, path: &Path, body: impl futures::Stream<Item = Bytes> + Send + 'static) -> Result<()> {
        let (plugin, bucket, key) = (self.0.plugin.clone(), self.0.bucket.clone(), path.to_string());
        let message =
            move |body| PutObjectRequest { plugin: plugin.clone(), bucket: bucket.clone(), key: key.clone(), body };
        // The first message is empty: it has the name of the object, which may be empty itself.
        let chunks = body.flat_map(|bytes| stream::iter(split_into_chunks(bytes)));
        let named = stream::once(std::future::ready(message(Bytes::new())));
        let messages = named.chain(chunks.map(message));
        self.0.session.client_streaming(PUT_OBJECT, &self.0.plugin, messages, UPLOAD_TIMEOUT).await.map(drop)
    }
}

/// Splits bytes into chunks that plugins accept.
fn split_into_chunks(mut bytes: Bytes) -> Vec<Bytes> {
    let mut chunks = Vec::with_capacity(bytes.len().div_ceil(CHUNK_SIZE));
    while !bytes.is_empty() {
        chunks.push(bytes.split_to(CHUNK_SIZE.min(bytes.len())));
    }
    chunks
}

fn meta(path: &Path, size: u64) -> ObjectMeta {
    ObjectMeta { location: path.clone(), last_modified: Default::default(), size, e_tag: None, version: None }
}

fn unsupported(what: &str) -> object_store::Error {
    object_store::Error::NotSupported { source: format!("object store plugins do not support {what}").into() }
}

/// A prefix with a trailing slash, or an empty one.
fn directory_prefix(prefix: Option<&Path>) -> String {
    match prefix {
        Some(prefix) if !prefix.as_ref().is_empty() => format!("{prefix}/"),
        _ => String::new(),
    }
}

#[async_trait]
impl ObjectStore for PluginObjectStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> StoreResult<PutResult> {
        if options.mode != PutMode::Overwrite {
            return Err(unsupported("conditional writes"));
        }
        let mut attempt = 1;
        loop {
            let chunks: Vec<Bytes> = payload.iter().cloned().collect();
            match self.send(location, stream::iter(chunks)).await {
                Ok(()) => return Ok(PutResult { e_tag: None, version: None, extensions: Default::default() }),
                Err(error) if error.is_retryable() && attempt < MAX_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        let (to, from) = mpsc::unbounded_channel::<(PutPayload, oneshot::Sender<()>)>();
        let body = stream::unfold(from, |mut from| async {
            let (payload, received) = from.recv().await?;
            let _ = received.send(());
            Some((stream::iter(payload.into_iter().collect::<Vec<_>>()), from))
        });
        let body = body.flatten().boxed();
        let (objects, path) = (self.clone(), location.clone());
        let upload = tokio::spawn(async move { objects.send(&path, body).await });
        Ok(Box::new(StreamingUpload { parts: Some(to), upload: Some(upload) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> StoreResult<GetResult> {
        if options.head {
            return self.check_exists(location).await;
        }
        let reader = self.read(location).await?;
        let size = reader.size();
        let (payload, range) = match &options.range {
            None => (reader.stream(), 0..size),
            Some(object_store::GetRange::Bounded(range)) => {
                let bytes = reader.range(range.clone()).await?;
                let range = range.start..range.start + bytes.len() as u64;
                (stream::once(std::future::ready(Ok(bytes))).boxed(), range)
            }
            Some(_) => return Err(unsupported("open ranges")),
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(payload),
            meta: meta(location, size.max(range.end)),
            range,
            attributes: Default::default(),
            extensions: Default::default(),
        })
    }

    fn delete_stream(&self, locations: BoxStream<'static, StoreResult<Path>>) -> BoxStream<'static, StoreResult<Path>> {
        let objects = self.clone();
        let delete = move |path: Path| {
            let objects = objects.clone();
            async move {
                let Empty {} = objects.call_with_retries(DELETE_OBJECT, objects.object(path.as_ref())).await?;
                Ok(path)
            }
        };
        locations.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        let (objects, prefix) = (self.clone(), directory_prefix(prefix));
        let listed = async move {
            let (plugin, bucket) = (objects.0.plugin.clone(), objects.0.bucket.clone());
            let answer = objects.call_with_retries(LIST_OBJECTS, ListObjectsRequest { plugin, bucket, prefix }).await?;
            let metas = answer.keys.into_iter().map(|key| Ok(meta(&Path::parse(key)?, 0)));
            Ok::<_, object_store::Error>(stream::iter(metas))
        };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        let (plugin, bucket, delimiter) = (self.0.plugin.clone(), self.0.bucket.clone(), "/".to_owned());
        let request = ListCommonPrefixesRequest { plugin, bucket, delimiter, prefix: directory_prefix(prefix) };
        let answer = self.call_with_retries(LIST_COMMON_PREFIXES, request).await?;
        let prefixes = answer.prefixes.iter().map(|prefix| Path::parse(prefix.trim_end_matches('/')));
        let common_prefixes = prefixes.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(ListResult { common_prefixes, objects: Vec::new(), extensions: Default::default() })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> StoreResult<()> {
        Err(unsupported("copies"))
    }
}

impl PluginObjectStore {
    async fn check_exists(&self, location: &Path) -> StoreResult<GetResult> {
        let answer = self.call_with_retries(OBJECT_EXISTS, self.object(location.as_ref())).await?;
        if !answer.exists {
            let source = "the plugin reports that it does not exist".into();
            return Err(object_store::Error::NotFound { path: location.to_string(), source });
        }
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::empty().boxed()),
            meta: meta(location, 0),
            range: 0..0,
            attributes: Default::default(),
            extensions: Default::default(),
        })
    }
}

#[async_trait]
impl Signer for PluginObjectStore {
    async fn signed_url(&self, method: Verb, path: &Path, expires_in: Duration) -> StoreResult<Url> {
        if method != Verb::GET {
            return Err(unsupported("signed URLs for other methods than GET"));
        }
        let request = CreateSignedUrlRequest {
            plugin: self.0.plugin.clone(),
            bucket: self.0.bucket.clone(),
            key: path.to_string(),
            ttl: i64::try_from(expires_in.as_nanos()).unwrap_or(i64::MAX),
        };
        let answer = self.call_with_retries(CREATE_SIGNED_URL, request).await?;
        Url::parse(&answer.url).map_err(|error| {
            let (plugin, call) = (self.0.plugin.clone(), CREATE_SIGNED_URL.name());
            Error::ResponseInvalid { plugin, call, detail: format!("invalid URL: {error}") }.into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_are_split_into_chunks() {
        let sizes: Vec<_> =
            split_into_chunks(Bytes::from(vec![0; CHUNK_SIZE * 2 + 5])).iter().map(Bytes::len).collect();
        assert_eq!(sizes, [CHUNK_SIZE, CHUNK_SIZE, 5]);
        assert!(split_into_chunks(Bytes::new()).is_empty());
    }
}
