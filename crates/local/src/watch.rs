//! Watch: a cursor in the history, rendered as lines.

use crate::{
    Core,
    history::{Event, History},
    key::{Key, KeyRange},
    kind::Kind,
    negotiate::Form,
    request::Query,
    response::{self, Body, render_object},
    selector::Selector,
    status_error::StatusError,
};
use bytes::Bytes;
use futures::stream;
use http::Response;
use serde_json::json;
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// Maximum number of changes that one read of the history returns.
const MAX_EVENTS_PER_READ: usize = 500;
/// Duration of a watch without `timeoutSeconds`.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);

struct Watch {
    kind: Arc<Kind>,
    range: KeyRange,
    selector: Selector,
    form: Form,
    history: Arc<History>,
    latest: watch::Receiver<u64>,
    /// Everything up to this revision has been sent or was not selected.
    cursor: u64,
    /// The last revision sent, so that an idle watch gets a bookmark only after a change.
    bookmarked: u64,
    bookmark_interval: Option<Duration>,
    next_bookmark: Instant,
    deadline: Instant,
    /// Lines to send before the history is read, such as the initial state.
    pending_lines: VecDeque<Bytes>,
    ended: bool,
}

impl Core {
    pub fn watch(
        &self,
        kind: Arc<Kind>,
        namespace: Option<&str>,
        query: &Query,
        form: Form,
    ) -> Result<Response<Body>, StatusError> {
        let selector = Selector::parse(&query.labels, &query.fields, &kind)?;
        check_initial_events(query)?;
        let now = Instant::now();
        let timeout = query.timeout.filter(|seconds| *seconds > 0).map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        let mut watch = Watch {
            range: selector.range(&kind, namespace),
            selector,
            form,
            history: Arc::clone(&self.database.history),
            latest: self.database.history.subscribe(),
            cursor: query.revision()?.unwrap_or_default(),
            bookmarked: 0,
            bookmark_interval: query.bookmarks.then_some(self.options.bookmark_interval),
            next_bookmark: now + self.options.bookmark_interval,
            deadline: now + timeout,
            pending_lines: VecDeque::new(),
            ended: false,
            kind,
        };
        if query.initial_events.unwrap_or(watch.cursor == 0) {
            self.send_initial_state(&mut watch, query.initial_events == Some(true))?;
        } else if watch.cursor == 0 {
            watch.cursor = self.database.snapshot()?.revision;
        }
        watch.bookmarked = watch.cursor;
        Ok(response::stream(stream::unfold(watch, |mut watch| async { Some((watch.next().await?, watch)) })))
    }

    fn send_initial_state(&self, watch: &mut Watch, with_end_bookmark: bool) -> Result<(), StatusError> {
        let snapshot = self.database.snapshot()?;
        if watch.cursor > snapshot.revision {
            return Err(StatusError::revision_in_future(watch.cursor, snapshot.revision));
        }
        for row in snapshot.scan(&watch.range)? {
            let (encoded_key, stored) = row?;
            let stored = Bytes::copy_from_slice(stored.value());
            let is_selected = Key::decode(encoded_key.value()).is_some_and(|key| watch.matches(&key, &stored));
            if is_selected {
                let line = watch.line("ADDED", &stored)?;
                watch.pending_lines.push_back(line);
            }
        }
        watch.cursor = snapshot.revision;
        if with_end_bookmark && watch.bookmark_interval.is_some() {
            let line = watch.bookmark(&json!({"k8s.io/initial-events-end": "true"}));
            watch.pending_lines.push_back(line);
        }
        Ok(())
    }
}

fn check_initial_events(query: &Query) -> Result<(), StatusError> {
    let invalid = |cause: &str| {
        Err(StatusError::new(422, "Invalid", format!("ListOptions.meta.k8s.io \"\" is invalid: {cause}")))
    };
    match (query.initial_events, query.revision_match.as_str()) {
        (Some(_), "NotOlderThan") | (None, "") => Ok(()),
        (Some(_), _) => invalid(
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (None, _) => invalid(
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    }
}

impl Watch {
    /// The next lines, or the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.pending_lines.pop_front() {
                return Some(line);
            }
            if self.ended {
                return None;
            }
            match self.read() {
                Ok(Some(lines)) if lines.is_empty() => {}
                Ok(Some(lines)) => return Some(lines),
                Ok(None) => self.wait().await,
                Err(failure) => return Some(self.end_with(&failure)),
            }
        }
    }

    /// Lines for the next changes; `None` if there are no changes.
    fn read(&mut self) -> Result<Option<Bytes>, StatusError> {
        let events = self.history.after(self.cursor, MAX_EVENTS_PER_READ)?;
        let Some(last) = events.last() else { return Ok(None) };
        let mut lines = Vec::new();
        for event in events.iter().filter(|event| self.range.contains(&event.encoded_key)) {
            if let Some(line) = self.event_line(event)? {
                lines.extend_from_slice(&line);
                self.bookmarked = event.revision;
            }
        }
        self.cursor = last.revision;
        Ok(Some(lines.into()))
    }

    /// With a selector, a change can add an object to the watch or remove it.
    fn event_line(&self, event: &Event) -> Result<Option<Bytes>, StatusError> {
        let was = event.before.as_ref().is_some_and(|before| self.matches(&event.key, before));
        let is = !event.deleted && self.matches(&event.key, &event.object);
        Ok(match (was, is) {
            (false, false) => None,
            (false, true) => Some(self.line("ADDED", &event.object)?),
            (true, true) => Some(self.line("MODIFIED", &event.object)?),
            (true, false) => Some(self.line("DELETED", &event.object)?),
        })
    }

    fn matches(&self, key: &Key, stored: &[u8]) -> bool {
        self.selector.is_empty() || self.selector.matches(&self.kind, key, stored)
    }

    fn line(&self, change: &str, stored: &Bytes) -> Result<Bytes, StatusError> {
        let object = render_object(&self.kind, self.form, self.kind.encode_version(stored)?)?;
        Ok([b"{\"type\":\"", change.as_bytes(), b"\",\"object\":", &object, b"}\n"].concat().into())
    }

    fn bookmark(&self, annotations: &serde_json::Value) -> Bytes {
        let mut metadata = json!({"resourceVersion": self.cursor.to_string(), "creationTimestamp": null});
        if annotations.is_object() {
            metadata["annotations"] = annotations.clone();
        }
        let object = json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata});
        let object = match self.form {
            Form::Object => object,
            Form::Metadata => crate::table::only_metadata(&object),
            Form::Table(_) => json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                "columnDefinitions": null, "rows": [{"cells": [], "object": crate::table::only_metadata(&object)}]}),
        };
        format!("{}\n", json!({"type": "BOOKMARK", "object": object})).into()
    }

    async fn wait(&mut self) {
        let bookmarks = self.bookmark_interval;
        tokio::select! {
            changed = self.latest.changed() => {
                self.ended = changed.is_err() || *self.latest.borrow_and_update() == u64::MAX;
            }
            () = sleep_until(self.next_bookmark), if bookmarks.is_some() => self.queue_bookmark(),
            () = sleep_until(self.deadline) => {
                if bookmarks.is_some() {
                    self.queue_bookmark();
                }
                self.ended = true;
            }
        }
    }

    fn queue_bookmark(&mut self) {
        if self.cursor > self.bookmarked {
            self.pending_lines.push_back(self.bookmark(&serde_json::Value::Null));
            self.bookmarked = self.cursor;
        }
        self.next_bookmark = Instant::now() + self.bookmark_interval.unwrap_or(DEFAULT_TIMEOUT);
    }

    fn end_with(&mut self, failure: &StatusError) -> Bytes {
        self.ended = true;
        format!("{}\n", json!({"type": "ERROR", "object": failure.status()})).into()
    }
}
