//! Getting and listing.

use crate::{
    Core,
    answer::Answer,
    database::Snapshot,
    failure::Failure,
    key::{Key, Span},
    kind::Kind,
    negotiate::Form,
    selector::Selector,
    table,
    target::Query,
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// Where a list goes on: after `start`, as of revision `rv`; `left` objects behind the page that ended there.
#[derive(Debug, Deserialize, Serialize)]
struct Token {
    rv: i64,
    start: String,
    left: Option<usize>,
}

impl Token {
    fn encode(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(json!(self).to_string())
    }

    fn decode(text: &str) -> Result<Self, Failure> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let token = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        token.ok_or_else(|| Failure::bad_request("continue key is not valid: it was not made by this server"))
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
    pub fn get(&self, kind: &Kind, key: &Key) -> Result<Answer, Failure> {
        let stored = self.database.snapshot()?.get(key)?;
        let stored = stored.ok_or_else(|| Failure::not_found(kind.about(&key.name)))?;
        Ok(Answer::ok(kind.present(&stored)?))
    }

    /// The objects of a kind, or a page of them.
    pub async fn list(
        self: &Arc<Self>,
        kind: Arc<Kind>,
        namespace: Option<String>,
        query: Query,
        form: Form,
    ) -> Result<Answer, Failure> {
        let selector = Selector::parse(&query.labels, &query.fields, &kind)?;
        let snapshot = self.database.snapshot()?;
        let moment = Moment::of(&query, snapshot.revision)?;
        let span = selector.span(&kind, namespace.as_deref());
        let mut then = BTreeMap::new();
        if moment.revision < snapshot.revision {
            self.database.history.reached(snapshot.revision).await;
            let undone = self.database.history.undo(moment.revision, &span);
            then = undone.map_err(|failure| moment.expired(failure, snapshot.revision))?;
        }
        let work = move || {
            let page = moment.page(&snapshot, &kind, &span, &selector, &query, &then)?;
            render(&kind, form, &moment, page)
        };
        // A list of everything may take a while; other requests must not wait for it.
        tokio::task::spawn_blocking(work).await.map_err(|error| Failure::internal(error.to_string()))?
    }

    /// The keys of everything a selection matches now.
    pub fn select(&self, kind: &Kind, namespace: Option<&str>, selector: &Selector) -> Result<Vec<Key>, Failure> {
        let snapshot = self.database.snapshot()?;
        let mut keys = Vec::new();
        for row in snapshot.scan(&selector.span(kind, namespace))? {
            let (place, stored) = row?;
            let key = Key::decode(place.value());
            keys.extend(key.filter(|key| selector.is_empty() || selector.matches(kind, key, stored.value())));
        }
        Ok(keys)
    }
}

/// The state that a list shows.
struct Moment {
    revision: u64,
    token: Option<Token>,
}

impl Moment {
    fn of(query: &Query, current: u64) -> Result<Self, Failure> {
        let asked = query.revision()?;
        if !query.token.is_empty() {
            if asked.is_some_and(|revision| revision != 0) {
                return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
            }
            let token = Token::decode(&query.token)?;
            // A negative revision goes on with what is there now, consistent or not.
            return Ok(Self { revision: u64::try_from(token.rv).unwrap_or(current), token: Some(token) });
        }
        match (query.revision_match.as_str(), asked) {
            (_, Some(revision)) if revision > current => Err(Failure::revision_in_future(revision, current)),
            ("Exact", Some(0)) => Err(forbidden_match("is forbidden when resourceVersion is \"0\"")),
            ("Exact", Some(revision)) => Ok(Self { revision, token: None }),
            ("", None) | ("" | "NotOlderThan", Some(_)) => Ok(Self { revision: current, token: None }),
            (_, None) => Err(forbidden_match("is forbidden unless resourceVersion is provided")),
            _ => Err(forbidden_match("is not supported")),
        }
    }

    fn expired(&self, failure: Failure, current: u64) -> Failure {
        let Some(token) = &self.token else { return failure };
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                       new list without the continue parameter, or use the continue token in this response to retrieve \
                       the remainder of the results. Continuing with the provided token results in an inconsistent \
                       list - objects that were created, modified, or deleted between the time the first chunk was \
                       returned and now may show up in the list.";
        tracing::debug!(asked = self.revision, current, "a paged list has expired");
        let resume = Token { rv: -1, start: token.start.clone(), left: None };
        Failure { resume: Some(resume.encode()), ..Failure::expired(message) }
    }

    fn page(
        &self,
        snapshot: &Snapshot,
        kind: &Kind,
        span: &Span,
        selector: &Selector,
        query: &Query,
        then: &BTreeMap<Vec<u8>, Option<Bytes>>,
    ) -> Result<Page, Failure> {
        let span = match &self.token {
            Some(token) => span.clone().after(token.start.as_bytes()),
            None => span.clone(),
        };
        let limit = if query.limit == 0 { usize::MAX } else { query.limit };
        let counted = selector.is_empty();
        let known_left = self.token.as_ref().and_then(|token| token.left);
        let mut page = Page { items: Vec::new(), last: None, remaining: None };
        let mut last = Vec::new();
        let mut beyond = 0;
        for row in merged(snapshot, &span, then)? {
            let (place, stored) = row?;
            let wanted = || Key::decode(&place).is_some_and(|key| selector.matches(kind, &key, &stored));
            if !counted && !wanted() {
                continue;
            }
            if page.items.len() < limit {
                page.items.push(kind.present(&stored)?);
                last = place;
                continue;
            }
            if counted && known_left.is_none() && then.is_empty() {
                // Nothing has to be read to be counted.
                beyond = snapshot.scan(&span.clone().after(&last))?.count();
                break;
            }
            beyond += 1;
            // Counting the rest is only needed once: later pages know from their token.
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
            metadata["continue"] = json!(Token { rv, start, left: page.remaining }.encode());
        }
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        metadata
    }
}

fn forbidden_match(why: &str) -> Failure {
    let message =
        format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch {why}");
    Failure::new(422, "Invalid", message)
}

type Row = (Vec<u8>, Bytes);

/// The rows of a span as they were: those on disk, corrected by what has changed since.
fn merged<'a>(
    snapshot: &Snapshot,
    span: &Span,
    then: &'a BTreeMap<Vec<u8>, Option<Bytes>>,
) -> Result<Box<dyn Iterator<Item = Result<Row, Failure>> + 'a>, Failure> {
    let stored = snapshot.scan(span)?.map(|row| {
        let (place, stored) = row?;
        Ok((place.value().to_vec(), Bytes::copy_from_slice(stored.value())))
    });
    if then.is_empty() {
        return Ok(Box::new(stored));
    }
    let mut stored = stored.filter(|row| !matches!(row, Ok((place, _)) if then.contains_key(place))).peekable();
    let span = span.clone();
    let past = then.iter().filter(move |(place, _)| span.contains(place));
    let mut past = past.filter_map(|(place, bytes)| Some((place.clone(), bytes.clone()?))).peekable();
    Ok(Box::new(std::iter::from_fn(move || {
        let from_past = match (stored.peek(), past.peek()) {
            (Some(Ok((now, _))), Some((before, _))) => before < now,
            (None, Some(_)) => true,
            _ => false,
        };
        if from_past { past.next().map(Ok) } else { stored.next() }
    })))
}

fn render(kind: &Kind, form: Form, moment: &Moment, page: Page) -> Result<Answer, Failure> {
    let metadata = moment.metadata(&page);
    if form == Form::Object {
        return Ok(Answer::ok(concatenate(kind, &metadata, page.items)));
    }
    let parse = |bytes: &Bytes| serde_json::from_slice(bytes);
    let objects = page.items.iter().map(parse).collect::<Result<Vec<Value>, _>>()?;
    Ok(Answer::json(&match form {
        Form::Table(include) => table::render(&kind.columns, &objects, include, &metadata),
        _ => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "items": objects.iter().map(table::only_metadata).collect::<Vec<_>>(),
        }),
    }))
}

/// A list is its items' bytes, joined: nothing is parsed on the way out.
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
