//! Objects on disk, written by one thread.
//!
//! ```text
//! requests ──jobs──> writer thread ──one transaction, one fsync per batch──> redb
//!                         └─ then: observer, history, and last the replies
//! ```
//! Jobs run one after the other, so a check and the write that relies on it are atomic.
//! A reply is sent after its commit, so an acknowledged write survives `kill -9`.

use crate::{
    Error,
    history::{Event, History, Retention},
    key::{Key, KeyRange},
    object::{PartialObject, metadata},
    status_error::StatusError,
};
use bytes::Bytes;
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs::{OpenOptions, Permissions},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::{Arc, Mutex, PoisonError, RwLock},
    thread::JoinHandle,
};
use tokio::sync::{mpsc, oneshot};

const OBJECTS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("objects");
/// Owner uid, zero byte, key of the dependent.
const OWNED: TableDefinition<&[u8], ()> = TableDefinition::new("owned");
/// Keys of objects that are being deleted.
const PENDING: TableDefinition<&[u8], ()> = TableDefinition::new("pending");
const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
const REVISION: &str = "revision";

/// Maximum number of queued jobs; further requests wait for a slot.
const QUEUE_LIMIT: usize = 1024;
/// Maximum number of jobs in one commit. More would only delay the first of them.
const MAX_BATCH: usize = 256;

type Reply = Box<dyn FnOnce(Result<(), StatusError>) + Send>;
type Job = Box<dyn FnOnce(&mut Draft<'_>) -> Reply + Send>;
/// Called with committed changes before they are published.
pub(crate) type Observer = Box<dyn FnMut(&[Arc<Event>]) + Send>;

pub(crate) struct Database {
    /// `None` once closed, which unlocks the file.
    redb: RwLock<Option<Arc<redb::Database>>>,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    pub history: Arc<History>,
}

/// Creates a file if there is none, and lets only its owner read it.
fn make_private(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))
}

impl Database {
    /// Opens or creates the database and starts its writer.
    pub fn open(
        path: &Path,
        cache: usize,
        retention: Retention,
    ) -> Result<(Self, impl FnOnce(Observer) + use<>), Error> {
        // It holds Secrets.
        make_private(path).map_err(|source| Error::file(path, source))?;
        let opened = redb::Database::builder().set_cache_size(cache).create(path);
        let redb = Arc::new(opened.map_err(|source| Error::database(path, source))?);
        let revision = prepare(&redb).map_err(|source| Error::database(path, source))?;
        let history = Arc::new(History::new(revision, retention));
        let (jobs, queue) = mpsc::channel(QUEUE_LIMIT);
        let mut writer = Writer { redb: Arc::clone(&redb), history: Arc::clone(&history), revision, observer: None };
        let (observe, observer) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            writer.observer = observer.recv().ok();
            writer.run(queue);
        });
        let redb = RwLock::new(Some(redb));
        let database = Self { redb, jobs: Mutex::new(Some(jobs)), writer: Mutex::new(Some(thread)), history };
        Ok((database, move |observer| drop(observe.send(observer))))
    }

    /// Runs a job on the writer thread and waits until its changes are on disk. An error discards its changes.
    pub async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Draft<'_>) -> Result<T, StatusError> + Send + 'static,
    ) -> Result<T, StatusError> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |draft| {
            let result = job(draft);
            if result.is_err() {
                draft.discard();
            }
            Box::new(move |committed| drop(answer.send(committed.and(result))))
        });
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        jobs.ok_or_else(closed)?.send(job).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    /// A consistent view of everything committed.
    pub fn snapshot(&self) -> Result<Snapshot, StatusError> {
        let redb = self.redb.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed)?;
        let transaction = redb.begin_read().map_err(internal)?;
        let counters = transaction.open_table(COUNTERS).map_err(internal)?;
        let revision = counters.get(REVISION)?.map_or(0, |value| value.value());
        Ok(Snapshot { revision, objects: transaction.open_table(OBJECTS).map_err(internal)?, transaction })
    }

    /// Ends the watches and waits until the writer has committed the queued jobs.
    pub fn close(&self) {
        self.history.close();
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer
            && writer.thread().id() != std::thread::current().id()
        {
            // The panic hook has reported a panic of the writer.
            let _ = writer.join();
        }
        self.redb.write().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.close();
    }
}

fn prepare(redb: &redb::Database) -> Result<u64, redb::Error> {
    let transaction = redb.begin_write()?;
    transaction.open_table(OBJECTS)?;
    transaction.open_table(OWNED)?;
    transaction.open_table(PENDING)?;
    let revision = {
        let mut counters = transaction.open_table(COUNTERS)?;
        let revision = counters.get(REVISION)?.map(|value| value.value());
        if revision.is_none() {
            // Zero means "any" in requests, so no object may have it.
            counters.insert(REVISION, 1)?;
        }
        revision.unwrap_or(1)
    };
    transaction.commit()?;
    Ok(revision)
}

fn closed() -> StatusError {
    StatusError::new(503, "ServiceUnavailable", "the embedded API is closed")
}

fn internal(error: impl Into<redb::Error>) -> StatusError {
    StatusError::internal(format!("database: {}", error.into()))
}

/// Everything committed at one moment.
pub(crate) struct Snapshot {
    pub revision: u64,
    objects: redb::ReadOnlyTable<&'static [u8], &'static [u8]>,
    transaction: redb::ReadTransaction,
}

impl Snapshot {
    pub fn get(&self, key: &Key) -> Result<Option<Bytes>, StatusError> {
        Ok(self.objects.get(key.encode().as_slice())?.map(|value| Bytes::copy_from_slice(value.value())))
    }

    pub fn scan(&self, range: &KeyRange) -> Result<redb::Range<'static, &'static [u8], &'static [u8]>, StatusError> {
        Ok(self.objects.range(range.start.as_slice()..range.end.as_slice())?)
    }

    pub fn keys(&self, range: &KeyRange, limit: usize) -> Result<Vec<Key>, StatusError> {
        let rows = self.scan(range)?.take(limit);
        rows.filter_map(|row| row.map(|(key, _)| Key::decode(key.value())).transpose()).map(|key| Ok(key?)).collect()
    }

    /// The objects with an owner reference to `uid`; with an empty uid, all that have owners.
    pub fn dependents(&self, uid: &str) -> Result<Vec<Key>, StatusError> {
        let range = if uid.is_empty() { KeyRange { start: vec![], end: vec![0xff] } } else { KeyRange::of(uid, None) };
        let owned = self.transaction.open_table(OWNED).map_err(internal)?;
        let mut keys = Vec::new();
        for row in owned.range(range.start.as_slice()..range.end.as_slice())? {
            let (encoded_key, ()) = (row?.0, ());
            let dependent = encoded_key.value().splitn(2, |byte| *byte == 0).nth(1);
            keys.extend(dependent.and_then(Key::decode));
        }
        Ok(keys)
    }

    /// The objects that are being deleted.
    pub fn pending(&self) -> Result<Vec<Key>, StatusError> {
        let pending = self.transaction.open_table(PENDING).map_err(internal)?;
        let mut keys = Vec::new();
        for row in pending.iter()? {
            keys.extend(Key::decode(row?.0.value()));
        }
        Ok(keys)
    }
}

/// What a job reads and writes: committed objects, changes of earlier jobs, and its own changes.
pub(crate) struct Draft<'a> {
    objects: &'a redb::Table<'a, &'static [u8], &'static [u8]>,
    staged: Vec<Event>,
    revision: u64,
}

impl Draft<'_> {
    pub fn get(&self, key: &Key) -> Result<Option<Value>, StatusError> {
        Ok(self.bytes(&key.encode())?.map(|bytes| serde_json::from_slice(&bytes)).transpose()?)
    }

    /// Writes an object with a new resource version.
    pub fn put(&mut self, key: &Key, object: &mut Value) -> Result<Bytes, StatusError> {
        self.stage(key, object, false)
    }

    /// Removes an object and returns its last state.
    pub fn remove(&mut self, key: &Key, object: &mut Value) -> Result<Bytes, StatusError> {
        self.stage(key, object, true)
    }

    /// Discards the changes of this job, as in a dry run.
    pub fn discard(&mut self) {
        self.staged.clear();
    }

    fn bytes(&self, encoded_key: &[u8]) -> Result<Option<Bytes>, StatusError> {
        if let Some(event) = self.staged.iter().rev().find(|event| event.encoded_key == encoded_key) {
            return Ok((!event.deleted).then(|| event.object.clone()));
        }
        Ok(self.objects.get(encoded_key)?.map(|value| Bytes::copy_from_slice(value.value())))
    }

    fn stage(&mut self, key: &Key, object: &mut Value, deleted: bool) -> Result<Bytes, StatusError> {
        let revision = self.revision + self.staged.len() as u64 + 1;
        metadata(object).insert("resourceVersion".to_owned(), json!(revision.to_string()));
        let encoded_key = key.encode();
        let before = self.bytes(&encoded_key)?;
        let bytes = Bytes::from(serde_json::to_vec(object)?);
        self.staged.push(Event { revision, key: key.clone(), encoded_key, before, object: bytes.clone(), deleted });
        Ok(bytes)
    }
}

struct Writer {
    redb: Arc<redb::Database>,
    history: Arc<History>,
    revision: u64,
    observer: Option<Observer>,
}

impl Writer {
    fn run(&mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(first) = queue.blocking_recv() {
            let waiting = std::iter::from_fn(|| queue.try_recv().ok());
            let batch: Vec<Job> = std::iter::once(first).chain(waiting.take(MAX_BATCH - 1)).collect();
            let mut replies = Vec::with_capacity(batch.len());
            let result = self.commit(batch, &mut replies);
            for answer in replies {
                answer(result.clone());
            }
        }
    }

    fn commit(&mut self, batch: Vec<Job>, replies: &mut Vec<Reply>) -> Result<(), StatusError> {
        let transaction = self.redb.begin_write().map_err(internal)?;
        let events = self.apply(&transaction, batch, replies)?;
        let Some(last) = events.last() else { return transaction.abort().map_err(StatusError::from) };
        let revision = last.revision;
        transaction.commit().map_err(internal)?;
        self.revision = revision;
        if let Some(observer) = &mut self.observer {
            observer(&events);
        }
        self.history.publish(&events);
        Ok(())
    }

    fn apply(
        &self,
        transaction: &redb::WriteTransaction,
        batch: Vec<Job>,
        replies: &mut Vec<Reply>,
    ) -> Result<Vec<Arc<Event>>, StatusError> {
        let mut objects = transaction.open_table(OBJECTS).map_err(internal)?;
        let mut owned = transaction.open_table(OWNED).map_err(internal)?;
        let mut pending = transaction.open_table(PENDING).map_err(internal)?;
        let mut events: Vec<Arc<Event>> = Vec::new();
        for job in batch {
            let revision = events.last().map_or(self.revision, |event| event.revision);
            let mut draft = Draft { objects: &objects, staged: Vec::new(), revision };
            replies.push(job(&mut draft));
            for event in draft.staged {
                if event.deleted {
                    objects.remove(event.encoded_key.as_slice())?;
                } else {
                    objects.insert(event.encoded_key.as_slice(), event.object.as_ref())?;
                }
                index(&event, &mut owned, &mut pending)?;
                events.push(Arc::new(event));
            }
        }
        if let Some(last) = events.last() {
            transaction.open_table(COUNTERS).map_err(internal)?.insert(REVISION, last.revision)?;
        }
        Ok(events)
    }
}

type IndexTable<'a> = redb::Table<'a, &'static [u8], ()>;

/// Updates the two indexes for a changed object.
fn index(event: &Event, owned: &mut IndexTable<'_>, pending: &mut IndexTable<'_>) -> Result<(), StatusError> {
    let before = event.before.as_deref().map(PartialObject::of).unwrap_or_default();
    let after = if event.deleted { PartialObject::default() } else { PartialObject::of(&event.object) };
    let (had, has) = (owner_index_keys(&before, event), owner_index_keys(&after, event));
    for index_key in had.difference(&has) {
        owned.remove(index_key.as_slice())?;
    }
    for index_key in has.difference(&had) {
        owned.insert(index_key.as_slice(), ())?;
    }
    match (before.metadata.deletion_timestamp.is_some(), after.metadata.deletion_timestamp.is_some()) {
        (false, true) => drop(pending.insert(event.encoded_key.as_slice(), ())?),
        (true, false) => drop(pending.remove(event.encoded_key.as_slice())?),
        _ => {}
    }
    Ok(())
}

fn owner_index_keys(head: &PartialObject, event: &Event) -> BTreeSet<Vec<u8>> {
    head.owners().iter().map(|owner| [owner.uid.as_bytes(), event.encoded_key.as_slice()].join(&0)).collect()
}
