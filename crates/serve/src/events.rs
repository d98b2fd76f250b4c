//! Server-sent events: the overview and one operation.

use std::sync::Arc;

use axum::response::sse::Event;
use futures::{Stream, stream};
use serde::Serialize;
use serde_json::json;

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
