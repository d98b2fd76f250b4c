//! Objects on disk, written by one thread.
//!
//! ```text
//! requests ──jobs──> writer thread ──one transaction, one fsync for all that wait──> redb
//!                         └─ then: history, observer, and only then the answers
//! ```
//! A job reads and changes objects as if it were alone, so a check and the write that relies on it cannot be separated.
//! An answer is sent after the commit that holds it, so what was acknowledged survives `kill -9`.

use crate::{
    Error,
    failure::Failure,
    history::{Event, History, Retention},
    key::{Key, Span},
    object::{Head, metadata},
};
use bytes::Bytes;
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
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

/// Jobs that may wait; beyond that requests wait before they become jobs.
const QUEUE: usize = 1024;
/// Jobs that share one commit. More would only make the first of them wait longer.
const BATCH: usize = 256;

type Acknowledge = Box<dyn FnOnce(Result<(), Failure>) + Send>;
type Job = Box<dyn FnOnce(&mut Draft<'_>) -> Acknowledge + Send>;
/// Told about committed changes before anybody else is.
pub(crate) type Observer = Box<dyn FnMut(&[Arc<Event>]) + Send>;

pub(crate) struct Database {
    /// Gone once closed: the file is unlocked with it.
    redb: RwLock<Option<Arc<redb::Database>>>,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    pub history: Arc<History>,
}

impl Database {
    /// Opens or makes the database and starts its writer.
    pub fn open(
        path: &Path,
        cache: usize,
        retention: Retention,
    ) -> Result<(Self, impl FnOnce(Observer) + use<>), Error> {
        let opened = redb::Database::builder().set_cache_size(cache).create(path);
        let redb = Arc::new(opened.map_err(|source| Error::database(path, source))?);
        let revision = prepare(&redb).map_err(|source| Error::database(path, source))?;
        let history = Arc::new(History::new(revision, retention));
        let (jobs, queue) = mpsc::channel(QUEUE);
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

    /// Runs a job on the writer thread and waits until its changes are on disk. An error of the job undoes its changes.
    pub async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Draft<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
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
    pub fn snapshot(&self) -> Result<Snapshot, Failure> {
        let redb = self.redb.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed)?;
        let transaction = redb.begin_read().map_err(internal)?;
        let counters = transaction.open_table(COUNTERS).map_err(internal)?;
        let revision = counters.get(REVISION)?.map_or(0, |value| value.value());
        Ok(Snapshot { revision, objects: transaction.open_table(OBJECTS).map_err(internal)?, transaction })
    }

    /// Ends the watches, lets the writer finish what it has, and waits for it.
    pub fn close(&self) {
        self.history.close();
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer
            && writer.thread().id() != std::thread::current().id()
        {
            // A panic of the writer has been reported by the panic hook already.
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

fn closed() -> Failure {
    Failure::new(503, "ServiceUnavailable", "the local API has been closed")
}

fn internal(error: impl Into<redb::Error>) -> Failure {
    Failure::internal(format!("database: {}", error.into()))
}

/// Everything committed at one moment.
pub(crate) struct Snapshot {
    pub revision: u64,
    objects: redb::ReadOnlyTable<&'static [u8], &'static [u8]>,
    transaction: redb::ReadTransaction,
}

impl Snapshot {
    pub fn get(&self, key: &Key) -> Result<Option<Bytes>, Failure> {
        Ok(self.objects.get(key.encode().as_slice())?.map(|value| Bytes::copy_from_slice(value.value())))
    }

    pub fn scan(&self, span: &Span) -> Result<redb::Range<'static, &'static [u8], &'static [u8]>, Failure> {
        Ok(self.objects.range(span.start.as_slice()..span.end.as_slice())?)
    }

    pub fn keys(&self, span: &Span, limit: usize) -> Result<Vec<Key>, Failure> {
        let rows = self.scan(span)?.take(limit);
        rows.filter_map(|row| row.map(|(key, _)| Key::decode(key.value())).transpose()).map(|key| Ok(key?)).collect()
    }

    /// The objects that name `uid` as an owner; with an empty uid, all that have any.
    pub fn dependents(&self, uid: &str) -> Result<Vec<Key>, Failure> {
        let span = if uid.is_empty() { Span { start: vec![], end: vec![0xff] } } else { Span::of(uid, None) };
        let owned = self.transaction.open_table(OWNED).map_err(internal)?;
        let mut keys = Vec::new();
        for row in owned.range(span.start.as_slice()..span.end.as_slice())? {
            let (place, ()) = (row?.0, ());
            let dependent = place.value().splitn(2, |byte| *byte == 0).nth(1);
            keys.extend(dependent.and_then(Key::decode));
        }
        Ok(keys)
    }

    /// The objects that are being deleted.
    pub fn pending(&self) -> Result<Vec<Key>, Failure> {
        let pending = self.transaction.open_table(PENDING).map_err(internal)?;
        let mut keys = Vec::new();
        for row in pending.iter()? {
            keys.extend(Key::decode(row?.0.value()));
        }
        Ok(keys)
    }
}

/// What a job sees and does: committed objects, those of jobs before it, and its own changes.
pub(crate) struct Draft<'a> {
    objects: &'a redb::Table<'a, &'static [u8], &'static [u8]>,
    staged: Vec<Event>,
    revision: u64,
}

impl Draft<'_> {
    pub fn get(&self, key: &Key) -> Result<Option<Value>, Failure> {
        Ok(self.bytes(&key.encode())?.map(|bytes| serde_json::from_slice(&bytes)).transpose()?)
    }

    /// Writes an object and gives it its revision.
    pub fn put(&mut self, key: &Key, object: &mut Value) -> Result<Bytes, Failure> {
        self.stage(key, object, false)
    }

    /// Removes an object; the answer is its last state.
    pub fn remove(&mut self, key: &Key, object: &mut Value) -> Result<Bytes, Failure> {
        self.stage(key, object, true)
    }

    /// Forgets the changes of this job, as a dry run does.
    pub fn discard(&mut self) {
        self.staged.clear();
    }

    fn bytes(&self, place: &[u8]) -> Result<Option<Bytes>, Failure> {
        if let Some(event) = self.staged.iter().rev().find(|event| event.place == place) {
            return Ok((!event.deleted).then(|| event.object.clone()));
        }
        Ok(self.objects.get(place)?.map(|value| Bytes::copy_from_slice(value.value())))
    }

    fn stage(&mut self, key: &Key, object: &mut Value, deleted: bool) -> Result<Bytes, Failure> {
        let revision = self.revision + self.staged.len() as u64 + 1;
        metadata(object).insert("resourceVersion".to_owned(), json!(revision.to_string()));
        let place = key.encode();
        let before = self.bytes(&place)?;
        let bytes = Bytes::from(serde_json::to_vec(object)?);
        self.staged.push(Event { revision, key: key.clone(), place, before, object: bytes.clone(), deleted });
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
            let batch: Vec<Job> = std::iter::once(first).chain(waiting.take(BATCH - 1)).collect();
            let mut acknowledge = Vec::with_capacity(batch.len());
            let result = self.commit(batch, &mut acknowledge);
            for answer in acknowledge {
                answer(result.clone());
            }
        }
    }

    fn commit(&mut self, batch: Vec<Job>, acknowledge: &mut Vec<Acknowledge>) -> Result<(), Failure> {
        let transaction = self.redb.begin_write().map_err(internal)?;
        let events = self.apply(&transaction, batch, acknowledge)?;
        let Some(last) = events.last() else { return transaction.abort().map_err(Failure::from) };
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
        acknowledge: &mut Vec<Acknowledge>,
    ) -> Result<Vec<Arc<Event>>, Failure> {
        let mut objects = transaction.open_table(OBJECTS).map_err(internal)?;
        let mut owned = transaction.open_table(OWNED).map_err(internal)?;
        let mut pending = transaction.open_table(PENDING).map_err(internal)?;
        let mut events: Vec<Arc<Event>> = Vec::new();
        for job in batch {
            let revision = events.last().map_or(self.revision, |event| event.revision);
            let mut draft = Draft { objects: &objects, staged: Vec::new(), revision };
            acknowledge.push(job(&mut draft));
            for event in draft.staged {
                if event.deleted {
                    objects.remove(event.place.as_slice())?;
                } else {
                    objects.insert(event.place.as_slice(), event.object.as_ref())?;
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

type Marks<'a> = redb::Table<'a, &'static [u8], ()>;

/// Keeps the two indexes in step with an object.
fn index(event: &Event, owned: &mut Marks<'_>, pending: &mut Marks<'_>) -> Result<(), Failure> {
    let before = event.before.as_deref().map(Head::of).unwrap_or_default();
    let after = if event.deleted { Head::default() } else { Head::of(&event.object) };
    let (had, has) = (owner_marks(&before, event), owner_marks(&after, event));
    for mark in had.difference(&has) {
        owned.remove(mark.as_slice())?;
    }
    for mark in has.difference(&had) {
        owned.insert(mark.as_slice(), ())?;
    }
    match (before.metadata.deletion_timestamp.is_some(), after.metadata.deletion_timestamp.is_some()) {
        (false, true) => drop(pending.insert(event.place.as_slice(), ())?),
        (true, false) => drop(pending.remove(event.place.as_slice())?),
        _ => {}
    }
    Ok(())
}

fn owner_marks(head: &Head, event: &Event) -> BTreeSet<Vec<u8>> {
    head.owners().iter().map(|owner| [owner.uid.as_bytes(), event.place.as_slice()].join(&0)).collect()
}
