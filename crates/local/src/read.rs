//! Get and list.

use crate::{
    Core,
    database::Snapshot,
    key::{Key, KeyRange},
    kind::Kind,
    negotiate::Form,
    request::Query,
    response::ApiResponse,
    selector::Selector,
    status_error::StatusError,
    table,
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// Where a list continues: after `start`, as of revision `rv`, with `left` objects after the previous page.
#[derive(Debug, Deserialize, Serialize)]
struct ContinueToken {
    rv: i64,
    start: String,
    left: Option<usize>,
}

impl ContinueToken {
    fn encode(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(json!(self).to_string())
    }

    fn decode(text: &str) -> Result<Self, StatusError> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let token = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        token.ok_or_else(|| StatusError::bad_request("continue key is not valid: it was not made by this server"))
    }
}

/// A page of a list.
struct Page {
    items: Vec<Bytes>,
    /// Key of the last item, if more follow.
    last: Option<Vec<u8>>,
    remaining: Option<usize>,
}

impl Core {
    pub fn get(&self, kind: &Kind, key: &Key) -> Result<ApiResponse, StatusError> {
        let stored = self.database.snapshot()?.get(key)?;
        let stored = stored.ok_or_else(|| StatusError::not_found(kind.details_for(&key.name)))?;
        Ok(ApiResponse::ok(kind.encode_version(&stored)?))
    }

    /// The objects of a kind, or a page of them.
    pub async fn list(
        self: &Arc<Self>,
        kind: Arc<Kind>,
        namespace: Option<String>,
        query: Query,
        form: Form,
    ) -> Result<ApiResponse, StatusError> {
        let selector = Selector::parse(&query.labels, &query.fields, &kind)?;
        let snapshot = self.database.snapshot()?;
        let list = ListRevision::of(&query, snapshot.revision)?;
        let range = selector.range(&kind, namespace.as_deref());
        let mut then = BTreeMap::new();
        if list.revision < snapshot.revision {
            self.database.history.wait_until(snapshot.revision).await;
            let undone = self.database.history.undo(list.revision, &range);
            then = undone.map_err(|failure| list.expired(failure, snapshot.revision))?;
        }
        let work = move || {
            let page = list.page(&snapshot, &kind, &range, &selector, &query, &then)?;
            render(&kind, form, &list, page)
        };
        // A list of everything is slow; other requests must not wait for it.
        tokio::task::spawn_blocking(work).await.map_err(|error| StatusError::internal(error.to_string()))?
    }

    /// The keys of all objects that a selector matches.
    pub fn select(&self, kind: &Kind, namespace: Option<&str>, selector: &Selector) -> Result<Vec<Key>, StatusError> {
        let snapshot = self.database.snapshot()?;
        let mut keys = Vec::new();
        for row in snapshot.scan(&selector.range(kind, namespace))? {
            let (encoded_key, stored) = row?;
            let key = Key::decode(encoded_key.value());
            keys.extend(key.filter(|key| selector.is_empty() || selector.matches(kind, key, stored.value())));
        }
        Ok(keys)
    }
}

/// The revision whose objects a list returns.
struct ListRevision {
    revision: u64,
    token: Option<ContinueToken>,
}

impl ListRevision {
    fn of(query: &Query, current: u64) -> Result<Self, StatusError> {
        let requested = query.revision()?;
        if !query.token.is_empty() {
            if requested.is_some_and(|revision| revision != 0) {
                return Err(StatusError::bad_request("specifying resource version is not allowed when using continue"));
            }
            let token = ContinueToken::decode(&query.token)?;
            // A negative revision continues with the current objects, consistent or not.
            return Ok(Self { revision: u64::try_from(token.rv).unwrap_or(current), token: Some(token) });
        }
        match (query.revision_match.as_str(), requested) {
            (_, Some(revision)) if revision > current => Err(StatusError::revision_in_future(revision, current)),
            ("Exact", Some(0)) => Err(forbidden_match("is forbidden when resourceVersion is \"0\"")),
            ("Exact", Some(revision)) => Ok(Self { revision, token: None }),
            ("", None) | ("" | "NotOlderThan", Some(_)) => Ok(Self { revision: current, token: None }),
            (_, None) => Err(forbidden_match("is forbidden unless resourceVersion is provided")),
            _ => Err(forbidden_match("is not supported")),
        }
    }

    fn expired(&self, failure: StatusError, current: u64) -> StatusError {
        let Some(token) = &self.token else { return failure };
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                       new list without the continue parameter, or use the continue token in this response to retrieve \
                       the remainder of the results. Continuing with the provided token results in an inconsistent \
                       list - objects that were created, modified, or deleted between the time the first chunk was \
                       returned and now may show up in the list.";
        tracing::debug!(requested = self.revision, current, "paged list expired");
        let continue_token = ContinueToken { rv: -1, start: token.start.clone(), left: None };
        StatusError { continue_token: Some(continue_token.encode()), ..StatusError::expired(message) }
    }

    fn page(
        &self,
        snapshot: &Snapshot,
        kind: &Kind,
        range: &KeyRange,
        selector: &Selector,
        query: &Query,
        then: &BTreeMap<Vec<u8>, Option<Bytes>>,
    ) -> Result<Page, StatusError> {
        let range = match &self.token {
            Some(token) => range.clone().after(token.start.as_bytes()),
            None => range.clone(),
        };
        let limit = if query.limit == 0 { usize::MAX } else { query.limit };
        let counted = selector.is_empty();
        let known_left = self.token.as_ref().and_then(|token| token.left);
        let mut page = Page { items: Vec::new(), last: None, remaining: None };
        let mut last = Vec::new();
        let mut beyond = 0;
        for row in merge_rows(snapshot, &range, then)? {
            let (encoded_key, stored) = row?;
            let is_selected = || Key::decode(&encoded_key).is_some_and(|key| selector.matches(kind, &key, &stored));
            if !counted && !is_selected() {
                continue;
            }
            if page.items.len() < limit {
                page.items.push(kind.encode_version(&stored)?);
                last = encoded_key;
                continue;
            }
            if counted && known_left.is_none() && then.is_empty() {
                // Counting needs no object.
                beyond = snapshot.scan(&range.clone().after(&last))?.count();
                break;
            }
            beyond += 1;
            // The rest is counted once: later pages have the count in their token.
            if !counted || known_left.is_some() {
                break;
            }
        }
        if beyond > 0 {
            page.last = Some(last);
            let left = known_left.map_or(beyond, |left| left.saturating_sub(page.items.len()));
            page.remaining = counted.then_some(left);
        }
        Ok(page)
    }

    fn metadata(&self, page: &Page) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(last) = &page.last {
            let start = String::from_utf8_lossy(last).into_owned();
            let rv = i64::try_from(self.revision).unwrap_or(i64::MAX);
            metadata["continue"] = json!(ContinueToken { rv, start, left: page.remaining }.encode());
        }
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        metadata
    }
}

fn forbidden_match(cause: &str) -> StatusError {
    let message = format!(
        "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch {cause}"
    );
    StatusError::new(422, "Invalid", message)
}

type Row = (Vec<u8>, Bytes);

/// The rows of a range at an earlier revision: those on disk, with later changes undone.
fn merge_rows<'a>(
    snapshot: &Snapshot,
    range: &KeyRange,
    then: &'a BTreeMap<Vec<u8>, Option<Bytes>>,
) -> Result<Box<dyn Iterator<Item = Result<Row, StatusError>> + 'a>, StatusError> {
    let stored = snapshot.scan(range)?.map(|row| {
        let (encoded_key, stored) = row?;
        Ok((encoded_key.value().to_vec(), Bytes::copy_from_slice(stored.value())))
    });
    if then.is_empty() {
        return Ok(Box::new(stored));
    }
    let mut stored =
        stored.filter(|row| !matches!(row, Ok((encoded_key, _)) if then.contains_key(encoded_key))).peekable();
    let range = range.clone();
    let past = then.iter().filter(move |(encoded_key, _)| range.contains(encoded_key));
    let mut past = past.filter_map(|(encoded_key, bytes)| Some((encoded_key.clone(), bytes.clone()?))).peekable();
    Ok(Box::new(std::iter::from_fn(move || {
        let from_past = match (stored.peek(), past.peek()) {
            (Some(Ok((now, _))), Some((before, _))) => before < now,
            (None, Some(_)) => true,
            _ => false,
        };
        if from_past { past.next().map(Ok) } else { stored.next() }
    })))
}

fn render(kind: &Kind, form: Form, list: &ListRevision, page: Page) -> Result<ApiResponse, StatusError> {
    let metadata = list.metadata(&page);
    if form == Form::Object {
        return Ok(ApiResponse::ok(concatenate(kind, &metadata, page.items)));
    }
    let parse = |bytes: &Bytes| serde_json::from_slice(bytes);
    let objects = page.items.iter().map(parse).collect::<Result<Vec<Value>, _>>()?;
    Ok(ApiResponse::json(&match form {
        Form::Table(include) => table::render(&kind.columns, &objects, include, &metadata),
        _ => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "items": objects.iter().map(table::only_metadata).collect::<Vec<_>>(),
        }),
    }))
}

/// A list is the joined bytes of its items: nothing is parsed.
fn concatenate(kind: &Kind, metadata: &Value, items: Vec<Bytes>) -> Bytes {
    let size = items.iter().map(|item| item.len() + 1).sum::<usize>();
    let mut list = Vec::with_capacity(size + 256);
    let head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
        kind.list_kind,
        kind.api_version()
    );
    list.extend_from_slice(head.as_bytes());
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            list.push(b',');
        }
        list.extend_from_slice(&item);
    }
    list.extend_from_slice(b"]}");
    list.into()
}
