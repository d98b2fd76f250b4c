//! The most recent changes, in order, one for each revision.
//!
//! Each watch reads it with its own cursor, so an idle watch costs nothing and cannot lose an event: it either finds
//! the next revision here or gets \"410 Expired\" and lists again. Paged lists read it backwards, to return the objects
//! as of the revision of their first page.

use crate::{
    key::{Key, KeyRange},
    status_error::StatusError,
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
    pub encoded_key: Vec<u8>,
    pub before: Option<Bytes>,
    /// The new state; for a deleted object its last state, with the revision of the deletion.
    pub object: Bytes,
    pub deleted: bool,
}

impl Event {
    fn size(&self) -> usize {
        self.object.len() + self.before.as_ref().map_or(0, Bytes::len) + self.encoded_key.len() + size_of::<Self>()
    }
}

/// How much history is retained.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Maximum number of changes.
    pub events: usize,
    /// Maximum size of the changes in bytes.
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
    /// The newest revision that was removed.
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

    /// Waits until a committed revision has been published here.
    pub async fn wait_until(&self, revision: u64) {
        // Fails only when the sender is gone, and it is in `self`.
        let _ = self.subscribe().wait_for(|latest| *latest >= revision).await;
    }

    /// The changes after a revision, at most `limit`.
    pub fn after(&self, revision: u64, limit: usize) -> Result<Vec<Arc<Event>>, StatusError> {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        let skip = ring.position_after(revision)?;
        Ok(ring.events.iter().skip(skip).take(limit).cloned().collect())
    }

    /// The objects of a range at `revision`, where they have changed since; `None` if an object did not exist.
    pub fn undo(&self, revision: u64, range: &KeyRange) -> Result<BTreeMap<Vec<u8>, Option<Bytes>>, StatusError> {
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        let skip = ring.position_after(revision)?;
        let mut then = BTreeMap::new();
        for event in ring.events.iter().skip(skip).filter(|event| range.contains(&event.encoded_key)) {
            then.entry(event.encoded_key.clone()).or_insert_with(|| event.before.clone());
        }
        Ok(then)
    }
}

impl Ring {
    fn position_after(&self, revision: u64) -> Result<usize, StatusError> {
        let behind = revision
            .checked_sub(self.compacted)
            .ok_or_else(|| StatusError::revision_too_old(revision, self.compacted))?;
        Ok(usize::try_from(behind).unwrap_or(usize::MAX))
    }
}
