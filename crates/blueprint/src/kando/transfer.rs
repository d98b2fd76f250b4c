//! Transfers data to and from a location, with progress.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use futures::StreamExt;
use plimsoll_progress::{Clock, Encoder, Ending, Frame, Meter, Operation, Task, Total, Unit, Wait};
use plimsoll_store::{Observer, Store};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{KandoError, Result};
use crate::profile::ResolvedProfile;

/// Interval of progress frames.
const FRAME_INTERVAL: Duration = Duration::from_secs(1);
/// Size of a read.
const CHUNK_SIZE: usize = 256 * 1024;

/// The result of a transfer or deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferSummary {
    /// Bytes.
    pub bytes: u64,
    /// Objects.
    pub objects: u64,
}

/// The commands on one location. Every command calls `report` with a full frame at its start, every second and at its end.
#[derive(Debug)]
pub struct Kando {
    store: Store,
}

impl Kando {
    /// Opens the location of a profile. Sends nothing.
    pub fn open(profile: &ResolvedProfile) -> Result<Self> {
        Ok(Self { store: Store::open(&profile.require_store()?.location())? })
    }

    /// Uploads `source` to `path`; the object is visible only once complete. `size` is the size of the source, if known.
    pub async fn push(
        &self,
        path: &str,
        source: impl AsyncRead + Unpin,
        size: Option<u64>,
        report: impl FnMut(&Frame),
    ) -> Result<TransferSummary> {
        let key = key(path)?;
        let running = RunningCommand::new(Some(&self.store), "push", &key);
        let bytes = bytes_of(&running, size);
        running.run_with_progress(report, self.send(&key, source, &bytes)).await
    }

    async fn send(&self, key: &str, mut source: impl AsyncRead + Unpin, bytes: &Meter) -> Result<TransferSummary> {
        let mut upload = self.store.upload(key).await?;
        let mut buffer = BytesMut::with_capacity(CHUNK_SIZE);
        loop {
            buffer.reserve(CHUNK_SIZE);
            let read = source.read_buf(&mut buffer).await;
            let read = match read {
                Ok(read) => read,
                Err(error) => {
                    upload.abort().await?;
                    return Err(KandoError::local("read the data to push", error));
                }
            };
            if read == 0 {
                let written = upload.written();
                upload.finish().await?;
                return Ok(TransferSummary { bytes: written, objects: 1 });
            }
            upload.write(buffer.split().freeze()).await?;
            bytes.add(read as u64);
        }
    }

    /// Downloads the object at `path` to `target`.
    pub async fn pull(
        &self,
        path: &str,
        target: impl AsyncWrite + Unpin,
        report: impl FnMut(&Frame),
    ) -> Result<TransferSummary> {
        let key = key(path)?;
        let running = RunningCommand::new(Some(&self.store), "pull", &key);
        let bytes = bytes_of(&running, None);
        running.run_with_progress(report, self.fetch(&key, target, &bytes)).await
    }

    async fn fetch(&self, key: &str, mut target: impl AsyncWrite + Unpin, bytes: &Meter) -> Result<TransferSummary> {
        let mut reader = self.store.reader(key).await?;
        let expected = reader.info().size;
        bytes.set_total(Total::Final(expected));
        let mut found = 0;
        while let Some(chunk) = reader.next().await {
            let chunk = chunk?;
            target.write_all(&chunk).await.map_err(|error| KandoError::local("write the pulled data", error))?;
            found += chunk.len() as u64;
            bytes.add(chunk.len() as u64);
        }
        target.flush().await.map_err(|error| KandoError::local("write the pulled data", error))?;
        if found != expected {
            return Err(KandoError::Truncated { path: key.to_owned(), expected, found });
        }
        Ok(TransferSummary { bytes: found, objects: 1 })
    }

    /// Deletes the object at `path` and all objects under it. Missing objects are not an error.
    pub async fn delete(&self, path: &str, report: impl FnMut(&Frame)) -> Result<TransferSummary> {
        let key = key(path)?;
        let running = RunningCommand::new(Some(&self.store), "delete", &key);
        let removing = async {
            let exists = self.store.exists(&key).await?;
            self.store.delete(&key).await?;
            let deleted = self.store.delete_prefix(&key).await?;
            Ok(TransferSummary { bytes: 0, objects: deleted + u64::from(exists) })
        };
        running.run_with_progress(report, removing).await
    }
}

/// The key of a path under the prefix of the location, normalized as in Kanister.
pub(super) fn key(path: &str) -> Result<String> {
    let invalid = |cause| KandoError::InvalidPath { path: path.to_owned(), cause };
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.is_empty() {
        return Err(invalid("empty path: it would mean the whole location"));
    }
    if parts.contains(&"..") {
        return Err(invalid("must not contain .."));
    }
    Ok(parts.join("/"))
}

/// A running command.
pub(super) struct RunningCommand {
    operation: Operation,
    task: Task,
    _waits: Option<plimsoll_store::ObserverGuard>,
}

/// The meter of the bytes of a command; `size` is their total, if known.
pub(super) fn bytes_of(running: &RunningCommand, size: Option<u64>) -> Meter {
    let bytes = running.task.meter(Unit::Bytes);
    if let Some(size) = size {
        bytes.set_total(Total::Final(size));
    }
    bytes
}

impl RunningCommand {
    /// The first word of the operation name is the direction.
    pub(super) fn new(store: Option<&Store>, verb: &str, key: &str) -> Self {
        let operation = Operation::new(format!("{verb} {key}"), Clock::system());
        let task = operation.root();
        let observer = || Arc::new(WaitObserver { task: task.clone(), waiting: Mutex::default() });
        let waits = store.map(|store| store.observe(observer()));
        Self { operation, task, _waits: waits }
    }

    /// Runs the command and reports progress. Every frame is full: a reader of the log may start anywhere.
    pub(super) async fn run_with_progress(
        self,
        mut report: impl FnMut(&Frame),
        work: impl Future<Output = Result<TransferSummary>>,
    ) -> Result<TransferSummary> {
        let mut encoder = Encoder::new(epoch());
        // The first frame is sent before the transfer starts.
        report(&encoder.full(&self.operation.snapshot()));
        let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + FRAME_INTERVAL, FRAME_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tokio::pin!(work);
        let done = loop {
            tokio::select! {
                _ = tick.tick() => report(&encoder.full(&self.operation.snapshot())),
                done = &mut work => break done,
            }
        };
        self.operation.end(match &done {
            Ok(_) => Ending::Succeeded,
            Err(error) => Ending::Failed(error.to_string()),
        });
        report(&encoder.full(&self.operation.snapshot()));
        done
    }
}

/// A later command has a higher number.
fn epoch() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Shows the waits of the store on the task.
struct WaitObserver {
    task: Task,
    waiting: Mutex<Option<Wait>>,
}

impl WaitObserver {
    fn set(&self, wait: Option<Wait>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = wait;
    }
}

impl Observer for WaitObserver {
    fn on_wait(&self, wait: &plimsoll_store::Wait) {
        // The old wait ends first: otherwise both would be shown briefly.
        self.set(None);
        self.set(Some(self.task.wait(&wait.reason)));
    }

    fn on_resume(&self) {
        self.set(None);
    }
}
