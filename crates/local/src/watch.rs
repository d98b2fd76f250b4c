//! Watching: a cursor in the history, turned into lines.

use crate::{
    Core,
    answer::{self, Body, shape},
    failure::Failure,
    history::{Event, History},
    key::{Key, Span},
    kind::Kind,
    negotiate::Form,
    selector::Selector,
    target::Query,
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

/// Changes that are read from the history at once.
const CHUNK: usize = 500;
/// How long a watch lasts when the client does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);

struct Watch {
    kind: Arc<Kind>,
    span: Span,
    selector: Selector,
    form: Form,
    history: Arc<History>,
    latest: watch::Receiver<u64>,
    /// Everything up to here has been sent or was not wanted.
    cursor: u64,
    /// What was sent last, so that a quiet watch gets a bookmark only when there is news.
    bookmarked: u64,
    bookmark_every: Option<Duration>,
    next_bookmark: Instant,
    deadline: Instant,
    /// Lines that are ready before the history is read: the initial state.
    ready: VecDeque<Bytes>,
    ended: bool,
}

impl Core {
    pub fn watch(
        &self,
        kind: Arc<Kind>,
        namespace: Option<&str>,
        query: &Query,
        form: Form,
    ) -> Result<Response<Body>, Failure> {
        let selector = Selector::parse(&query.labels, &query.fields, &kind)?;
        check_initial_events(query)?;
        let now = Instant::now();
        let timeout = query.timeout.filter(|seconds| *seconds > 0).map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        let mut watch = Watch {
            span: selector.span(&kind, namespace),
            selector,
            form,
            history: Arc::clone(&self.database.history),
            latest: self.database.history.subscribe(),
            cursor: query.revision()?.unwrap_or_default(),
            bookmarked: 0,
            bookmark_every: query.bookmarks.then_some(self.options.bookmark_interval),
            next_bookmark: now + self.options.bookmark_interval,
            deadline: now + timeout,
            ready: VecDeque::new(),
            ended: false,
            kind,
        };
        if query.initial_events.unwrap_or(watch.cursor == 0) {
            self.send_initial_state(&mut watch, query.initial_events == Some(true))?;
        } else if watch.cursor == 0 {
            watch.cursor = self.database.snapshot()?.revision;
        }
        watch.bookmarked = watch.cursor;
        Ok(answer::stream(stream::unfold(watch, |mut watch| async { Some((watch.next().await?, watch)) })))
    }

    fn send_initial_state(&self, watch: &mut Watch, marked: bool) -> Result<(), Failure> {
        let snapshot = self.database.snapshot()?;
        if watch.cursor > snapshot.revision {
            return Err(Failure::revision_in_future(watch.cursor, snapshot.revision));
        }
        for row in snapshot.scan(&watch.span)? {
            let (place, stored) = row?;
            let stored = Bytes::copy_from_slice(stored.value());
            let wanted = Key::decode(place.value()).is_some_and(|key| watch.wants(&key, &stored));
            if wanted {
                let line = watch.line("ADDED", &stored)?;
                watch.ready.push_back(line);
            }
        }
        watch.cursor = snapshot.revision;
        if marked && watch.bookmark_every.is_some() {
            let line = watch.bookmark(&json!({"k8s.io/initial-events-end": "true"}));
            watch.ready.push_back(line);
        }
        Ok(())
    }
}

fn check_initial_events(query: &Query) -> Result<(), Failure> {
    let refuse =
        |why: &str| Err(Failure::new(422, "Invalid", format!("ListOptions.meta.k8s.io \"\" is invalid: {why}")));
    match (query.initial_events, query.revision_match.as_str()) {
        (Some(_), "NotOlderThan") | (None, "") => Ok(()),
        (Some(_), _) => refuse(
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (None, _) => refuse(
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    }
}

impl Watch {
    /// The next lines, or the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
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
    fn read(&mut self) -> Result<Option<Bytes>, Failure> {
        let events = self.history.after(self.cursor, CHUNK)?;
        let Some(last) = events.last() else { return Ok(None) };
        let mut lines = Vec::new();
        for event in events.iter().filter(|event| self.span.contains(&event.place)) {
            if let Some(line) = self.show(event)? {
                lines.extend_from_slice(&line);
                self.bookmarked = event.revision;
            }
        }
        self.cursor = last.revision;
        Ok(Some(lines.into()))
    }

    /// With a selector, a change may bring an object into view or take it out of view.
    fn show(&self, event: &Event) -> Result<Option<Bytes>, Failure> {
        let was = event.before.as_ref().is_some_and(|before| self.wants(&event.key, before));
        let is = !event.deleted && self.wants(&event.key, &event.object);
        Ok(match (was, is) {
            (false, false) => None,
            (false, true) => Some(self.line("ADDED", &event.object)?),
            (true, true) => Some(self.line("MODIFIED", &event.object)?),
            (true, false) => Some(self.line("DELETED", &event.object)?),
        })
    }

    fn wants(&self, key: &Key, stored: &[u8]) -> bool {
        self.selector.is_empty() || self.selector.matches(&self.kind, key, stored)
    }

    fn line(&self, change: &str, stored: &Bytes) -> Result<Bytes, Failure> {
        let object = shape(&self.kind, self.form, self.kind.present(stored)?)?;
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
        let bookmarks = self.bookmark_every;
        tokio::select! {
            changed = self.latest.changed() => {
                self.ended = changed.is_err() || *self.latest.borrow_and_update() == u64::MAX;
            }
            () = sleep_until(self.next_bookmark), if bookmarks.is_some() => self.bookmark_if_news(),
            () = sleep_until(self.deadline) => {
                if bookmarks.is_some() {
                    self.bookmark_if_news();
                }
                self.ended = true;
            }
        }
    }

    fn bookmark_if_news(&mut self) {
        if self.cursor > self.bookmarked {
            self.ready.push_back(self.bookmark(&serde_json::Value::Null));
            self.bookmarked = self.cursor;
        }
        self.next_bookmark = Instant::now() + self.bookmark_every.unwrap_or(DEFAULT_TIMEOUT);
    }

    fn end_with(&mut self, failure: &Failure) -> Bytes {
        self.ended = true;
        format!("{}\n", json!({"type": "ERROR", "object": failure.status()})).into()
    }
}
