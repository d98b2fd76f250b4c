//! Server-sent events: the overview and one operation.

use std::sync::Arc;

use axum::response::sse::Event;
use futures::{Stream, stream};
use serde::Serialize;
use serde_json::json;

use crate::dashboard_state::{DashboardState, Reader};

type EventResult = Result<Event, axum::Error>;

fn event(name: &str, data: &impl Serialize) -> EventResult {
    Event::default().event(name).json_data(data)
}

/// The changes of the overview after an update.
pub fn overview(
    dashboard: Arc<DashboardState>,
    reader: Reader,
    last: Option<u64>,
) -> impl Stream<Item = EventResult> + Send {
    stream::unfold((dashboard, reader, last, true), |(dashboard, mut reader, last, first)| async move {
        if !first {
            reader.updates.changed().await.ok()?;
        }
        reader.updates.mark_unchanged();
        let update = dashboard.updates_since(last);
        let event = Event::default().event("news").id(dashboard.event_id(update.sequence)).json_data(&update);
        Some((event, (dashboard, reader, Some(update.sequence), false)))
    })
}

/// One operation, at each change.
pub fn operation(
    dashboard: Arc<DashboardState>,
    reader: Reader,
    key: String,
) -> impl Stream<Item = EventResult> + Send {
    stream::unfold((dashboard, reader, key, None), |(dashboard, mut reader, key, shown)| async move {
        loop {
            let detail = dashboard.detail(&key);
            if shown.as_ref() != Some(&detail) {
                let event = match &detail {
                    Some(detail) => event("operation", detail),
                    None => event("gone", &json!({})),
                };
                return Some((event, (dashboard, reader, key, Some(detail))));
            }
            reader.updates.changed().await.ok()?;
        }
    })
}
