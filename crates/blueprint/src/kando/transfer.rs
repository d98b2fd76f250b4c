//! Data to and from a location, counted on the way.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use futures::StreamExt;
use plimsoll_progress::{Clock, Encoder, Ending, Frame, Meter, Operation, Task, Total, Unit, Wait};
use plimsoll_store::{Observer, Store};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{KandoError, Result};
use crate::place::Place;

/// How often a frame goes out.
const INTERVAL: Duration = Duration::from_secs(1);
/// How much is read at once.
const PIECE: usize = 256 * 1024;

/// What was moved or removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes.
    pub bytes: u64,
    /// Objects.
    pub objects: u64,
}

/// The commands on one location. Every one of them gives `report` a whole frame at its start, every second and at its end.
#[derive(Debug)]
pub struct Kando {
    store: Store,
}

impl Kando {
    /// Opens the location of a profile. Nothing is sent yet.
    pub fn open(place: &Place) -> Result<Self> {
        Ok(Self { store: Store::open(&place.location())? })
    }

    /// Writes everything that `source` gives to `path`; nothing is visible there before all of it is. `size` is what the
    /// source will give, if that is known.
    pub async fn push(
        &self,
        path: &str,
        source: impl AsyncRead + Unpin,
        size: Option<u64>,
        report: impl FnMut(&Frame),
    ) -> Result<Moved> {
        let key = key(path)?;
        let running = Running::new(&self.store, "push", &key);
        let bytes = running.task.meter(Unit::Bytes);
        if let Some(size) = size {
            bytes.set_total(Total::Final(size));
        }
        running.reported(report, self.send(&key, source, &bytes)).await
    }

    async fn send(&self, key: &str, mut source: impl AsyncRead + Unpin, bytes: &Meter) -> Result<Moved> {
        let mut upload = self.store.upload(key).await?;
        let mut buffer = BytesMut::with_capacity(PIECE);
        loop {
            buffer.reserve(PIECE);
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
                return Ok(Moved { bytes: written, objects: 1 });
            }
            upload.write(buffer.split().freeze()).await?;
            bytes.add(read as u64);
        }
    }

    /// Writes everything that lies at `path` to `target`.
    pub async fn pull(&self, path: &str, target: impl AsyncWrite + Unpin, report: impl FnMut(&Frame)) -> Result<Moved> {
        let key = key(path)?;
        let running = Running::new(&self.store, "pull", &key);
        let bytes = running.task.meter(Unit::Bytes);
        running.reported(report, self.fetch(&key, target, &bytes)).await
    }

    async fn fetch(&self, key: &str, mut target: impl AsyncWrite + Unpin, bytes: &Meter) -> Result<Moved> {
        let mut reader = self.store.reader(key).await?;
        let expected = reader.info().size;
        bytes.set_total(Total::Final(expected));
        let mut found = 0;
        while let Some(piece) = reader.next().await {
            let piece = piece?;
            target.write_all(&piece).await.map_err(|error| KandoError::local("write what was pulled", error))?;
            found += piece.len() as u64;
            bytes.add(piece.len() as u64);
        }
        target.flush().await.map_err(|error| KandoError::local("write what was pulled", error))?;
        if found != expected {
            return Err(KandoError::Truncated { path: key.to_owned(), expected, found });
        }
        Ok(Moved { bytes: found, objects: 1 })
    }

    /// Removes what lies at `path` and below it. What is not there is removed.
    pub async fn delete(&self, path: &str, report: impl FnMut(&Frame)) -> Result<Moved> {
        let key = key(path)?;
        let running = Running::new(&self.store, "delete", &key);
        let removing = async {
            let alone = self.store.exists(&key).await?;
            self.store.delete(&key).await?;
            let below = self.store.delete_prefix(&key).await?;
            Ok(Moved { bytes: 0, objects: below + u64::from(alone) })
        };
        running.reported(report, removing).await
    }
}

/// The key of a path below the location's prefix: Kanister joins the two with exactly one slash.
fn key(path: &str) -> Result<String> {
    let wrong = |cause| KandoError::InvalidPath { path: path.to_owned(), cause };
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.is_empty() {
        return Err(wrong("it names nothing: everything in the location would be meant"));
    }
    if parts.contains(&"..") {
        return Err(wrong("it must not lead out of the location with .."));
    }
    Ok(parts.join("/"))
}

/// One command at work.
struct Running {
    operation: Operation,
    task: Task,
    _waits: plimsoll_store::ObserverGuard,
}

impl Running {
    /// The name tells the direction, by its first word.
    fn new(store: &Store, verb: &str, key: &str) -> Self {
        let operation = Operation::new(format!("{verb} {key}"), Clock::system());
        let task = operation.root();
        let waits = store.observe(Arc::new(Waits { task: task.clone(), waiting: Mutex::default() }));
        Self { operation, task, _waits: waits }
    }

    /// Carries the work out and tells how it goes. Every frame is whole: whoever reads a log may begin anywhere in it.
    async fn reported(
        self,
        mut report: impl FnMut(&Frame),
        work: impl Future<Output = Result<Moved>>,
    ) -> Result<Moved> {
        let mut encoder = Encoder::new(epoch());
        // The first frame goes out before anything moves.
        report(&encoder.full(&self.operation.snapshot()));
        let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + INTERVAL, INTERVAL);
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

/// A command that starts later has the greater number.
fn epoch() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Shows what the store waits for.
struct Waits {
    task: Task,
    waiting: Mutex<Option<Wait>>,
}

impl Waits {
    fn set(&self, wait: Option<Wait>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = wait;
    }
}

impl Observer for Waits {
    fn on_wait(&self, wait: &plimsoll_store::Wait) {
        // The old wait ends first: a guard that is replaced while it is held would show both.
        self.set(None);
        self.set(Some(self.task.wait(&wait.reason)));
    }

    fn on_resume(&self) {
        self.set(None);
    }
}
