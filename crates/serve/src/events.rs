//! Server-sent events: the overview, one operation, and the trees in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event;
use futures::{Stream, StreamExt, stream};
use plimsoll_progress::{Encoder, Trees};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use crate::board::{Board, Reader};

type EventResult = Result<Event, axum::Error>;

fn event(name: &str, data: &impl Serialize) -> EventResult {
    Event::default().event(name).json_data(data)
}

/// The overview from a place on.
pub fn overview(board: Arc<Board>, reader: Reader, place: Option<u64>) -> impl Stream<Item = EventResult> + Send {
    stream::unfold((board, reader, place, true), |(board, mut reader, place, first)| async move {
        if !first {
            reader.news.changed().await.ok()?;
        }
        reader.news.mark_unchanged();
        let news = board.since(place);
        let place = Some(news.sequence);
        let event = Event::default().event("news").id(board.place(news.sequence)).json_data(&news);
        Some((event, (board, reader, place, false)))
    })
}

/// One operation, each time it has changed.
pub fn operation(board: Arc<Board>, reader: Reader, key: String) -> impl Stream<Item = EventResult> + Send {
    stream::unfold((board, reader, key, None), |(board, mut reader, key, shown)| async move {
        loop {
            let detail = board.detail(&key);
            if shown.as_ref() != Some(&detail) {
                let event = match &detail {
                    Some(detail) => event("operation", detail),
                    None => event("gone", &json!({})),
                };
                return Some((event, (board, reader, key, Some(detail))));
            }
            reader.news.changed().await.ok()?;
        }
    })
}

struct TreeEncoder {
    trees: Trees,
    only: Option<String>,
    encoders: BTreeMap<String, Encoder>,
    epoch: u64,
    interval: Duration,
    next: Instant,
}

/// The trees in this process's memory as frames: at each interval, what has changed since the last one.
pub fn trees(
    trees: Trees,
    only: Option<String>,
    epoch: u64,
    interval: Duration,
) -> impl Stream<Item = EventResult> + Send {
    let encoder = TreeEncoder { trees, only, encoders: BTreeMap::new(), epoch, interval, next: Instant::now() };
    let batches = stream::unfold(encoder, |mut encoder| async move {
        tokio::time::sleep_until(encoder.next).await;
        encoder.next = Instant::now() + encoder.interval;
        Some((stream::iter(encoder.encode_changes()), encoder))
    });
    batches.flatten()
}

impl TreeEncoder {
    fn encode_changes(&mut self) -> Vec<EventResult> {
        let keys: Vec<String> =
            (self.trees.keys().into_iter()).filter(|key| self.only.as_ref().is_none_or(|only| only == key)).collect();
        let mut events = Vec::new();
        let gone: Vec<String> = self.encoders.keys().filter(|key| !keys.contains(key)).cloned().collect();
        for key in gone {
            self.encoders.remove(&key);
            events.push(event("gone", &json!({ "subject": key })));
        }
        for key in keys {
            let Some(tree) = self.trees.snapshot(&key) else { continue };
            let epoch = self.epoch;
            let encoder = self.encoders.entry(key.clone()).or_insert_with(|| Encoder::new(epoch));
            if let Some(frame) = encoder.encode(&tree) {
                events.push(event("frame", &json!({ "subject": key, "frame": frame })));
            }
        }
        events
    }
}
