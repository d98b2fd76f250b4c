//! An ObjectStore of a plugin as a store like any other.
//!
//! The protocol knows neither sizes nor conditions: what is read first says how large a small object is, lists know names only,
//! and "only if it is not there" is refused rather than pretended.

#![expect(clippy::default_trait_access, reason = "the types belong to crates that this one does not name")]

use std::fmt;
use std::io::Write;
use std::ops::Range;
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
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, UploadPart,
};
use plimsoll_store::{Location, Store, StoreError};
use secrecy::ExposeSecret;
use tempfile::NamedTempFile;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use url::Url;

use crate::catalog::{Catalog, Kind};
use crate::logs::LogSink;
use crate::session::{Prime, Session};
use crate::wire::{
    CREATE_SIGNED_URL, CreateSignedUrlRequest, DELETE_OBJECT, Empty, GET_OBJECT, INIT_STORE, InitRequest,
    LIST_COMMON_PREFIXES, LIST_OBJECTS, ListCommonPrefixesRequest, ListObjectsRequest, Method, OBJECT_EXISTS,
    ObjectRequest, PUT_OBJECT, PutObjectRequest,
};
use crate::{Error, Result};

/// The setting of a location that asks for the plugin instead of our own code for its provider.
pub const ASKS_FOR_PLUGIN: &str = "plimsoll.dev/object-store-plugin";

/// A piece on its way up: well below what plugins take in one message.
const PIECE: usize = 256 * 1024;
/// So much is read before the size of an object is said.
const READ_AHEAD: usize = 1 << 20;
/// How long a request that moves no data may take.
const ANSWERING: Duration = Duration::from_mins(2);
/// How long one object may take on its way up. The health of the process is watched all the while.
const SENDING: Duration = Duration::from_hours(12);
/// How often a request is made that found its process dead.
const ATTEMPTS: usize = 3;

/// Opens a location by way of the plugin that its provider names. Its process starts with the first request.
pub fn open_store(
    catalog: &Catalog,
    location: &Location,
    logs: Arc<dyn LogSink>,
) -> std::result::Result<Store, StoreError> {
    let unusable = |cause: String| StoreError::InvalidLocation { location: location.display_name(), cause };
    let offer = catalog.find(Kind::ObjectStore, &location.provider).map_err(|error| unusable(error.to_string()))?;
    let secret = location.credentials.as_ref().map(ExposeSecret::expose_secret);
    let credentials =
        secret.map(credentials_file).transpose().map_err(|error| unusable(format!("its credentials: {error}")))?;
    let init = InitRequest { plugin: offer.name.clone(), config: settings(location, credentials.as_ref()) };
    let session = catalog.session(&offer.binary, logs, vec![Prime::Init(INIT_STORE, init)]);
    let objects = PluginObjects(Arc::new(Inner {
        session,
        plugin: offer.name.clone(),
        bucket: location.bucket.clone(),
        idle: location.tuning.idle_timeout,
        _credentials: credentials,
    }));
    Store::from_signing_objects(Arc::new(objects), location.display_name(), &location.prefix)
}

/// What a plugin is told beside the location's own settings.
fn settings(location: &Location, credentials: Option<&NamedTempFile>) -> std::collections::HashMap<String, String> {
    let own = location.config.iter().filter(|(key, _)| *key != ASKS_FOR_PLUGIN);
    let mut config: std::collections::HashMap<_, _> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    config.insert("bucket".to_owned(), location.bucket.clone());
    config.insert("prefix".to_owned(), location.prefix.clone());
    if let Some(file) = credentials {
        config.insert("credentialsFile".to_owned(), file.path().display().to_string());
    }
    if let Some(certificates) = &location.ca_cert {
        config.insert("caCert".to_owned(), String::from_utf8_lossy(certificates).into_owned());
    }
    config
}

/// Plugins take credentials as a file. Only this process's user may read it, and it goes with its holder.
pub(crate) fn credentials_file(secret: &[u8]) -> std::io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix(&crate::sweep::credentials_prefix()).tempfile()?;
    file.write_all(secret)?;
    file.flush()?;
    Ok(file)
}

struct Inner {
    session: Arc<Session>,
    plugin: String,
    bucket: String,
    idle: Duration,
    _credentials: Option<NamedTempFile>,
}

/// The objects of a bucket, by way of a plugin.
#[derive(Clone)]
struct PluginObjects(Arc<Inner>);

impl fmt::Debug for PluginObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginObjects").field("plugin", &self.0.plugin).finish_non_exhaustive()
    }
}

impl fmt::Display for PluginObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plugin {}", self.0.plugin)
    }
}

type Stored<T> = object_store::Result<T>;

impl From<Error> for object_store::Error {
    fn from(error: Error) -> Self {
        Self::Generic { store: "plugin", source: Box::new(error) }
    }
}

impl PluginObjects {
    fn object(&self, key: &str) -> ObjectRequest {
        ObjectRequest { plugin: self.0.plugin.clone(), bucket: self.0.bucket.clone(), key: key.to_owned() }
    }

    /// Asks, and asks again where the process had died: everything asked this way may be repeated.
    async fn ask<Ask, Answer>(&self, method: Method<Ask, Answer>, request: Ask) -> Result<Answer>
    where
        Ask: prost::Message + crate::wire::ForPlugin + Clone + 'static,
        Answer: prost::Message + Default + 'static,
    {
        let mut attempt = 1;
        loop {
            match self.0.session.call(method, request.clone(), ANSWERING).await {
                Err(error) if error.is_retryable() && attempt < ATTEMPTS => attempt += 1,
                answer => return answer,
            }
        }
    }

    /// Plugins have no common word for "it is not there": whoever fails to read asks.
    async fn unless_missing(&self, error: Error, path: &Path) -> object_store::Error {
        match self.ask(OBJECT_EXISTS, self.object(path.as_ref())).await {
            Ok(answer) if !answer.exists => {
                object_store::Error::NotFound { path: path.to_string(), source: Box::new(error) }
            }
            _ => error.into(),
        }
    }

    async fn read(&self, path: &Path) -> Stored<Beginning> {
        let mut attempt = 1;
        loop {
            match self.begin_reading(path).await {
                Err(error) if error.is_retryable() && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(self.unless_missing(error, path).await),
                Ok(beginning) => return Ok(beginning),
            }
        }
    }

    async fn begin_reading(&self, path: &Path) -> Result<Beginning> {
        let pieces = self.0.session.receive(GET_OBJECT, self.object(path.as_ref()), self.0.idle.max(ANSWERING)).await?;
        let mut rest = pieces.map_ok(|piece| piece.data).boxed();
        let mut ahead = BytesMut::new();
        while ahead.len() < READ_AHEAD {
            match rest.try_next().await? {
                Some(piece) => ahead.extend_from_slice(&piece),
                None => return Ok(Beginning { ahead: ahead.freeze(), rest: stream::empty().boxed() }),
            }
        }
        Ok(Beginning { ahead: ahead.freeze(), rest })
    }

    async fn send(&self, path: &Path, body: impl futures::Stream<Item = Bytes> + Send + 'static) -> Result<()> {
        let (plugin, bucket, key) = (self.0.plugin.clone(), self.0.bucket.clone(), path.to_string());
        let message =
            move |body| PutObjectRequest { plugin: plugin.clone(), bucket: bucket.clone(), key: key.clone(), body };
        // An empty object is one empty message: the plugin learns its name from the first.
        let pieces = body.flat_map(|bytes| stream::iter(cut(bytes)));
        let named = stream::once(std::future::ready(message(Bytes::new())));
        let messages = named.chain(pieces.map(message));
        self.0.session.send(PUT_OBJECT, &self.0.plugin, messages, SENDING).await.map(drop)
    }
}

/// Pieces of a size that plugins take.
fn cut(mut bytes: Bytes) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(bytes.len().div_ceil(PIECE));
    while !bytes.is_empty() {
        pieces.push(bytes.split_to(PIECE.min(bytes.len())));
    }
    pieces
}

/// The beginning of an object, and the rest of it.
struct Beginning {
    ahead: Bytes,
    rest: BoxStream<'static, Result<Bytes>>,
}

impl Beginning {
    fn size(&self) -> u64 {
        self.ahead.len() as u64
    }

    fn stream(self) -> BoxStream<'static, Stored<Bytes>> {
        let ahead = stream::once(std::future::ready(Ok(self.ahead)));
        ahead.chain(self.rest.map_err(object_store::Error::from)).boxed()
    }

    /// The rest has to be read for it: the protocol knows no ranges.
    async fn range(self, wanted: Range<u64>) -> Stored<Bytes> {
        let (mut all, mut seen, mut found) = (self.stream(), 0, BytesMut::new());
        while let Some(piece) = all.try_next().await? {
            let (from, to) = (wanted.start.saturating_sub(seen), wanted.end.saturating_sub(seen));
            let cut = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(piece.len());
            found.extend_from_slice(&piece[cut(from)..cut(to)]);
            seen += piece.len() as u64;
            if seen >= wanted.end {
                break;
            }
        }
        Ok(found.freeze())
    }
}

fn meta(path: &Path, size: u64) -> ObjectMeta {
    ObjectMeta { location: path.clone(), last_modified: Default::default(), size, e_tag: None, version: None }
}

fn unsupported(what: &str) -> object_store::Error {
    object_store::Error::NotSupported { source: format!("object-store plugins have no {what}").into() }
}

/// A folder as plugins want it: with a slash at its end, or nothing.
fn folder(prefix: Option<&Path>) -> String {
    match prefix {
        Some(prefix) if !prefix.as_ref().is_empty() => format!("{prefix}/"),
        _ => String::new(),
    }
}

#[async_trait]
impl ObjectStore for PluginObjects {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Stored<PutResult> {
        if options.mode != PutMode::Overwrite {
            return Err(unsupported("conditional writes"));
        }
        let mut attempt = 1;
        loop {
            let pieces: Vec<Bytes> = payload.iter().cloned().collect();
            match self.send(location, stream::iter(pieces)).await {
                Ok(()) => return Ok(PutResult { e_tag: None, version: None, extensions: Default::default() }),
                Err(error) if error.is_retryable() && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn put_multipart_opts(&self, location: &Path, _: PutMultipartOptions) -> Stored<Box<dyn MultipartUpload>> {
        let (to, from) = mpsc::unbounded_channel::<(PutPayload, oneshot::Sender<()>)>();
        let body = stream::unfold(from, |mut from| async {
            let (payload, taken) = from.recv().await?;
            let _ = taken.send(());
            Some((stream::iter(payload.into_iter().collect::<Vec<_>>()), from))
        });
        let body = body.flatten().boxed();
        let (objects, path) = (self.clone(), location.clone());
        let sending = tokio::spawn(async move { objects.send(&path, body).await });
        Ok(Box::new(Sending { parts: Some(to), sending: Some(sending) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Stored<GetResult> {
        if options.head {
            return self.head_of(location).await;
        }
        let beginning = self.read(location).await?;
        let size = beginning.size();
        let (payload, range) = match &options.range {
            None => (beginning.stream(), 0..size),
            Some(object_store::GetRange::Bounded(range)) => {
                let bytes = beginning.range(range.clone()).await?;
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

    fn delete_stream(&self, locations: BoxStream<'static, Stored<Path>>) -> BoxStream<'static, Stored<Path>> {
        let objects = self.clone();
        let delete = move |path: Path| {
            let objects = objects.clone();
            async move {
                let Empty {} = objects.ask(DELETE_OBJECT, objects.object(path.as_ref())).await?;
                Ok(path)
            }
        };
        locations.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Stored<ObjectMeta>> {
        let (objects, prefix) = (self.clone(), folder(prefix));
        let listed = async move {
            let (plugin, bucket) = (objects.0.plugin.clone(), objects.0.bucket.clone());
            let answer = objects.ask(LIST_OBJECTS, ListObjectsRequest { plugin, bucket, prefix }).await?;
            let metas = answer.keys.into_iter().map(|key| Ok(meta(&Path::parse(key)?, 0)));
            Ok::<_, object_store::Error>(stream::iter(metas))
        };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Stored<ListResult> {
        let (plugin, bucket, delimiter) = (self.0.plugin.clone(), self.0.bucket.clone(), "/".to_owned());
        let request = ListCommonPrefixesRequest { plugin, bucket, delimiter, prefix: folder(prefix) };
        let answer = self.ask(LIST_COMMON_PREFIXES, request).await?;
        let prefixes = answer.prefixes.iter().map(|prefix| Path::parse(prefix.trim_end_matches('/')));
        let common_prefixes = prefixes.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(ListResult { common_prefixes, objects: Vec::new(), extensions: Default::default() })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Stored<()> {
        Err(unsupported("copies"))
    }
}

impl PluginObjects {
    async fn head_of(&self, location: &Path) -> Stored<GetResult> {
        let answer = self.ask(OBJECT_EXISTS, self.object(location.as_ref())).await?;
        if !answer.exists {
            let source = "the plugin says that it does not exist".into();
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
impl Signer for PluginObjects {
    async fn signed_url(&self, method: Verb, path: &Path, expires_in: Duration) -> Stored<Url> {
        if method != Verb::GET {
            return Err(unsupported("links for anything but reading"));
        }
        let request = CreateSignedUrlRequest {
            plugin: self.0.plugin.clone(),
            bucket: self.0.bucket.clone(),
            key: path.to_string(),
            ttl: i64::try_from(expires_in.as_nanos()).unwrap_or(i64::MAX),
        };
        let answer = self.ask(CREATE_SIGNED_URL, request).await?;
        Url::parse(&answer.url).map_err(|error| {
            let (plugin, call) = (self.0.plugin.clone(), CREATE_SIGNED_URL.name());
            Error::AnswerInvalid { plugin, call, detail: format!("it is no link: {error}") }.into()
        })
    }
}

/// An object on its way up, in one call. Nothing is visible unless the call ends well.
struct Sending {
    parts: Option<mpsc::UnboundedSender<(PutPayload, oneshot::Sender<()>)>>,
    sending: Option<JoinHandle<Result<()>>>,
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending").finish_non_exhaustive()
    }
}

fn broken() -> object_store::Error {
    object_store::Error::Generic { store: "plugin", source: "the upload has ended early".into() }
}

#[async_trait]
impl MultipartUpload for Sending {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (taken, is_taken) = oneshot::channel();
        // Sent here, not in the future: parts keep the order in which they were handed over.
        let sent = self.parts.as_ref().is_some_and(|parts| parts.send((data, taken)).is_ok());
        Box::pin(async move {
            // A broken upload says why when it is completed.
            if sent {
                let _ = is_taken.await;
            }
            Ok(())
        })
    }

    async fn complete(&mut self) -> Stored<PutResult> {
        self.parts = None;
        let Some(sending) = self.sending.take() else { return Err(broken()) };
        sending.await.map_err(|_| broken())??;
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn abort(&mut self) -> Stored<()> {
        self.stop();
        Ok(())
    }
}

impl Sending {
    /// The call is cut off before the body's end, which the plugin sees as a failure.
    fn stop(&mut self) {
        if let Some(sending) = self.sending.take() {
            sending.abort();
        }
        self.parts = None;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beginning(ahead: &'static str, rest: Vec<&'static str>) -> Beginning {
        let rest = stream::iter(rest.into_iter().map(|piece| Ok(Bytes::from(piece)))).boxed();
        Beginning { ahead: Bytes::from(ahead), rest }
    }

    #[tokio::test]
    async fn a_range_is_found_across_pieces() {
        for (range, expected) in [(0..3, "abc"), (2..7, "cdefg"), (6..99, "gh"), (50..60, "")] {
            let found = beginning("abcd", vec!["ef", "gh"]).range(range.clone()).await.unwrap();
            assert_eq!(found, expected, "{range:?}");
        }
    }

    #[test]
    fn a_plugin_learns_bucket_prefix_and_credentials_and_not_that_it_was_asked_for() {
        let mut location =
            Location { provider: "aws".into(), bucket: "b".into(), prefix: "p".into(), ..Location::default() };
        location.config.insert(ASKS_FOR_PLUGIN.into(), "true".into());
        location.config.insert("region".into(), "here".into());
        location.credentials = Some(b"secret".to_vec().into());
        let file = Some(credentials_file(b"secret").unwrap());
        let told = settings(&location, file.as_ref());
        let mut keys: Vec<_> = told.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["bucket", "credentialsFile", "prefix", "region"]);
        assert_eq!(std::fs::read(&told["credentialsFile"]).unwrap(), b"secret");
    }

    #[test]
    fn what_goes_up_is_cut_into_pieces_that_plugins_take() {
        let sizes: Vec<_> = cut(Bytes::from(vec![0; PIECE * 2 + 5])).iter().map(Bytes::len).collect();
        assert_eq!(sizes, [PIECE, PIECE, 5]);
        assert!(cut(Bytes::new()).is_empty());
    }
}
