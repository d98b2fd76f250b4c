//! The receiving side: replicas of the trees that a stream describes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use plimsoll_progress::{Clock, Frame, Replica, TreeRegistration, Trees};
use serde::Deserialize;

use crate::sse::parse_events;

/// Without any event for this long the replicas are no fresher than the custom resources. Heartbeats come more often.
const READ_TIMEOUT: Duration = Duration::from_secs(12);

#[derive(Deserialize)]
struct TreeEvent {
    subject: String,
    frame: Option<Frame>,
}

/// The replicas of one stream, by the uid of their subject.
#[derive(Default)]
struct Replicas(BTreeMap<String, (Arc<Mutex<Replica>>, TreeRegistration)>);

/// Keeps replicas of the trees of a stream in `trees`, until the stream ends or is silent for too long.
pub async fn replicate<E>(chunks: impl Stream<Item = Result<Bytes, E>>, trees: &Trees) {
    let mut replicas = Replicas::default();
    let mut events = std::pin::pin!(parse_events(chunks));
    while let Ok(Some((name, data))) = tokio::time::timeout(READ_TIMEOUT, events.next()).await {
        replicas.apply(&name, &data, trees);
    }
}

impl Replicas {
    fn apply(&mut self, name: &str, data: &str, trees: &Trees) {
        let Ok(event) = serde_json::from_str::<TreeEvent>(data) else { return };
        match (name, event.frame) {
            ("gone", _) => drop(self.0.remove(&event.subject)),
            ("frame", Some(frame)) => {
                let (replica, _) =
                    self.0.entry(event.subject.clone()).or_insert_with(|| add_replica(&event.subject, trees));
                // A frame that does not fit is followed by a complete one.
                let _ = replica.lock().unwrap_or_else(PoisonError::into_inner).apply(&frame);
            }
            _ => {}
        }
    }
}

fn add_replica(subject: &str, trees: &Trees) -> (Arc<Mutex<Replica>>, TreeRegistration) {
    let replica = Arc::new(Mutex::new(Replica::new(Clock::system())));
    let source = Arc::clone(&replica);
    let registration =
        trees.register(subject, move || source.lock().unwrap_or_else(PoisonError::into_inner).snapshot());
    (replica, registration)
}
