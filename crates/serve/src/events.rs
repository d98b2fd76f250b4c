//! Server-sent events: the overview, one operation, and the leader's trees.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use plimsoll_progress::{Encoder, Trees};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use crate::board::{Board, Reader};

/// A sign of life when nothing changes: proxies and readers give a silent stream up.
const BEAT: Duration = Duration::from_secs(5);

/// One event in the words of the protocol.
fn event(name: &str, place: Option<&str>, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_default();
    let id = place.map(|place| format!("id: {place}\n")).unwrap_or_default();
    // JSON has no line breaks of its own.
    format!("event: {name}\n{id}data: {data}\n\n").into()
}

/// The overview from a place on.
pub fn overview(board: Arc<Board>, reader: Reader, place: Option<u64>) -> impl Stream<Item = Bytes> + Send {
    stream::unfold((board, reader, place, true), |(board, mut reader, place, first)| async move {
        if !first && !changed(&mut reader).await {
            let beat = event("beat", None, &json!({}));
            return Some((beat, (board, reader, place, false)));
        }
        reader.news.mark_unchanged();
        let news = board.since(place);
        let place = Some(news.sequence);
        let bytes = event("news", Some(&board.place(news.sequence)), &news);
        Some((bytes, (board, reader, place, false)))
    })
}

/// Whether there is something new before the next sign of life is due.
async fn changed(reader: &mut Reader) -> bool {
    match tokio::time::timeout(BEAT, reader.news.changed()).await {
        Ok(Ok(())) => true,
        Ok(Err(_)) => std::future::pending().await,
        Err(_) => false,
    }
}

/// One operation, each time it has changed.
pub fn operation(board: Arc<Board>, reader: Reader, key: String) -> impl Stream<Item = Bytes> + Send {
    stream::unfold((board, reader, key, None), |(board, mut reader, key, shown)| async move {
        let beat = Instant::now() + BEAT;
        loop {
            let detail = board.detail(&key);
            if shown.as_ref() != Some(&detail) {
                let bytes = match &detail {
                    Some(detail) => event("operation", None, detail),
                    None => event("gone", None, &json!({})),
                };
                return Some((bytes, (board, reader, key, Some(detail))));
            }
            match tokio::time::timeout_at(beat, reader.news.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => return Some((event("beat", None, &json!({})), (board, reader, key, shown))),
            }
        }
    })
}

struct Frames {
    trees: Trees,
    only: Option<String>,
    encoders: BTreeMap<String, Encoder>,
    epoch: u64,
    every: Duration,
    look: Instant,
    beat: Instant,
}

/// The trees in this process's memory, as frames: what has changed since it was last looked.
pub fn trees(trees: Trees, only: Option<String>, epoch: u64, every: Duration) -> impl Stream<Item = Bytes> + Send {
    let now = Instant::now();
    let frames = Frames { trees, only, encoders: BTreeMap::new(), epoch, every, look: now, beat: now };
    stream::unfold(frames, |mut frames| async move {
        loop {
            tokio::time::sleep_until(frames.look).await;
            frames.look = Instant::now() + frames.every;
            let text = frames.next();
            if !text.is_empty() || Instant::now() >= frames.beat {
                frames.beat = Instant::now() + BEAT;
                let text = if text.is_empty() { event("beat", None, &json!({})) } else { text.into() };
                return Some((text, frames));
            }
        }
    })
}

impl Frames {
    fn next(&mut self) -> Vec<u8> {
        let keys: Vec<String> =
            (self.trees.keys().into_iter()).filter(|key| self.only.as_ref().is_none_or(|only| only == key)).collect();
        let mut text = Vec::new();
        let gone: Vec<String> = self.encoders.keys().filter(|key| !keys.contains(key)).cloned().collect();
        for key in gone {
            self.encoders.remove(&key);
            text.extend(event("gone", None, &json!({ "subject": key })));
        }
        for key in keys {
            let Some(tree) = self.trees.snapshot(&key) else { continue };
            let epoch = self.epoch;
            let encoder = self.encoders.entry(key.clone()).or_insert_with(|| Encoder::new(epoch));
            if let Some(frame) = encoder.encode(&tree) {
                text.extend(event("frame", None, &json!({ "subject": key, "frame": frame })));
            }
        }
        text
    }
}
