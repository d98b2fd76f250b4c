//! The recent past: the last changes, in order, one for each revision.
//!
//! Watches read it with a cursor of their own, so a watcher costs nothing while it is idle and cannot lose an event: it
//! either finds the next revision here or learns that it has fallen behind, and lists again. Lists read it backwards,
//! to see the objects as they were when their first page was made.

use crate::{
    failure::Failure,
    key::{Key, Span},
};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, PoisonError, RwLock},
};
use tokio::sync::watch;

/// One change to one object.
#[derive(Debug)]
pub(crate) struct Event {
    pub revision: u64,
    pub key: Key,
    pub place: Vec<u8>,
    pub before: Option<Bytes>,
    /// The new state; of a deleted object the last one, with the revision of the deletion.
    pub object: Bytes,
    pub deleted: bool,
}

impl Event {
    fn size(&self) -> usize {
        self.object.len() + self.before.as_ref().map_or(0, Bytes::len) + self.place.len() + size_of::<Self>()
    }
}

/// How much of the past is kept.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// At most so many changes.
    pub events: usize,
    /// At most so many bytes of them.
    pub bytes: usize,
}

impl Default for Retention {
    fn default() -> Self {
        Self { events: 20_000, bytes: 32 << 20 }
    }
}

#[derive(Debug)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// The newest revision that is no longer here.
    compacted: u64,
}

#[derive(Debug)]
pub(crate) struct History {
    ring: RwLock<Ring>,
    retention: Retention,
    latest: watch::Sender<u64>,
}

impl History {
    pub fn new(revision: u64, retention: Retention) -> Self {
        let ring = Ring { events: VecDeque::new(), bytes: 0, compacted: revision };
        Self { ring: RwLock::new(ring), retention, latest: watch::Sender::new(revision) }
    }

    /// Adds committed changes and wakes the watchers.
    pub fn publish(&self, events: &[Arc<Event>]) {
        let Some(last) = events.last() else { return };
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            ring.bytes += event.size();
            ring.events.push_back(Arc::clone(event));
        }
        while ring.events.len() > self.retention.events || ring.bytes > self.retention.bytes {
            let Some(oldest) = ring.events.pop_front() else { break };
            ring.bytes -= oldest.size();
            ring.compacted = oldest.revision;
        }
        drop(ring);
        self.latest.send_replace(last.revision);
    }

    /// Ends all watches.
    pub fn close(&self) {
        self.latest.send_replace(u64::MAX);
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// Waits until a revision that is committed has arrived here too.
    pub async fn reached(&self, revision: u64) {
        // Fails only when the sender is gone, and it is in `self`.
        let _ = self.subscribe().wait_for(|latest| *latest >= revision).await;
    }

    /// The changes after a revision, at most `limit`.
    pub fn after(&self, revision: u64, limit: usize) -> Result<Vec<Arc<Event>>, Failure> {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        let skip = ring.position_after(revision)?;
        Ok(ring.events.iter().skip(skip).take(limit).cloned().collect())
    }

    /// How the objects of a range were at `revision`, where they have changed since: `None` means there was none.
    pub fn undo(&self, revision: u64, span: &Span) -> Result<BTreeMap<Vec<u8>, Option<Bytes>>, Failure> {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        let skip = ring.position_after(revision)?;
        let mut then = BTreeMap::new();
        for event in ring.events.iter().skip(skip).filter(|event| span.contains(&event.place)) {
            then.entry(event.place.clone()).or_insert_with(|| event.before.clone());
        }
        Ok(then)
    }
}

impl Ring {
    fn position_after(&self, revision: u64) -> Result<usize, Failure> {
        let behind = revision.checked_sub(self.compacted).ok_or_else(|| Failure::too_old(revision, self.compacted))?;
        Ok(usize::try_from(behind).unwrap_or(usize::MAX))
    }
}
