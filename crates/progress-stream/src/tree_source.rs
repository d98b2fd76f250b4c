//! The sending side: the trees of this process as a stream of frames.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Response;
use axum::response::sse::Event;
use futures::{Stream, StreamExt, stream};
use plimsoll_progress::{Encoder, Trees};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use crate::response::event_stream;

/// What `GET /api/trees` serves.
#[derive(Clone, Debug)]
pub struct TreeSource {
    /// The trees, by the uid of their subject.
    pub trees: Trees,
    /// Grows from one process to the next; see [`process_epoch`].
    pub epoch: u64,
    /// How often the trees are compared with what a client has.
    pub interval: Duration,
}

/// An epoch for this process: larger than that of every earlier process.
pub fn process_epoch() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// Limits a stream to the tree of one subject.
#[derive(Debug, Deserialize)]
pub struct TreeQuery {
    subject: Option<String>,
}

/// Handles `GET /api/trees[?subject=UID]`.
pub async fn stream_trees(State(source): State<Arc<TreeSource>>, Query(query): Query<TreeQuery>) -> Response {
    event_stream(tree_events(&source, query.subject))
}

type EventResult = Result<Event, axum::Error>;

struct TreeEncoder {
    source: TreeSource,
    subject: Option<String>,
    encoders: BTreeMap<String, Encoder>,
    next: Instant,
}

/// Frames: at each interval, what has changed since the last one.
fn tree_events(source: &TreeSource, subject: Option<String>) -> impl Stream<Item = EventResult> + Send + use<> {
    let encoder = TreeEncoder { source: source.clone(), subject, encoders: BTreeMap::new(), next: Instant::now() };
    let batches = stream::unfold(encoder, |mut encoder| async move {
        tokio::time::sleep_until(encoder.next).await;
        encoder.next = Instant::now() + encoder.source.interval;
        Some((stream::iter(encoder.encode_changes()), encoder))
    });
    batches.flatten()
}

impl TreeEncoder {
    fn encode_changes(&mut self) -> Vec<EventResult> {
        let keys: Vec<String> = (self.source.trees.keys().into_iter())
            .filter(|key| self.subject.as_ref().is_none_or(|subject| subject == key))
            .collect();
        let removed: Vec<String> = self.encoders.keys().filter(|key| !keys.contains(key)).cloned().collect();
        let mut events = Vec::new();
        for key in removed {
            self.encoders.remove(&key);
            events.push(event("gone", &json!({ "subject": key })));
        }
        for key in keys {
            let Some(tree) = self.source.trees.snapshot(&key) else { continue };
            let epoch = self.source.epoch;
            let encoder = self.encoders.entry(key.clone()).or_insert_with(|| Encoder::new(epoch));
            if let Some(frame) = encoder.encode(&tree) {
                events.push(event("frame", &json!({ "subject": key, "frame": frame })));
            }
        }
        events
    }
}

fn event(name: &str, data: &impl Serialize) -> EventResult {
    Event::default().event(name).json_data(data)
}
