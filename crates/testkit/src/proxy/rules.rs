//! Rules that select requests for faults.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::{Method, Uri};

/// A fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is forwarded after this time.
    Latency(Duration),
    /// It gets this status; the server never gets it.
    Status(u16),
    /// It gets no response; the server never gets it.
    Hang,
    /// The connection is closed without a response; the server never gets the request.
    CloseConnection,
    /// The server handles the request, and the connection is closed without a response.
    DropResponse,
    /// The connection is closed after this number of bytes of the response body.
    TruncateResponse(usize),
    /// The response body stalls after this number of bytes.
    StallResponse(usize),
    /// The server gets this number of bytes of the request body, then its connection is closed.
    TruncateRequest(usize),
}

/// A set of requests.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    method: Option<Method>,
    fragments: Vec<String>,
    limit: Option<usize>,
    one_in: Option<u64>,
}

impl Requests {
    /// All requests.
    pub fn all() -> Self {
        Self::default()
    }

    /// Requests with this method.
    pub fn with_method(method: Method) -> Self {
        Self { method: Some(method), ..Self::default() }
    }

    /// Only requests whose path and query contain this.
    #[must_use]
    pub fn containing(mut self, fragment: impl Into<String>) -> Self {
        self.fragments.push(fragment.into());
        self
    }

    /// Only the first `limit` requests.
    #[must_use]
    pub fn first(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Only one in `number` of them, at random but the same ones in every run. Not at fixed intervals: a sequence of requests as
    /// long as the interval would never succeed.
    #[must_use]
    pub fn one_in(mut self, number: u64) -> Self {
        self.one_in = Some(number);
        self
    }

    fn contains(&self, method: &Method, uri: &str) -> bool {
        self.method.as_ref().is_none_or(|wanted| wanted == method)
            && self.fragments.iter().all(|f| uri.contains(f.as_str()))
    }
}

/// All rules of a proxy, and the requests that it got.
#[derive(Debug, Default)]
pub(super) struct Rules {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    rules: Vec<Rule>,
    seen: Vec<(Method, String)>,
}

#[derive(Debug)]
struct Rule {
    id: u64,
    requests: Requests,
    fault: Fault,
    matched: u64,
    hits: usize,
}

impl Rule {
    /// Whether the fault applies to this request; counts it.
    fn applies(&mut self, method: &Method, uri: &str) -> bool {
        if !self.requests.contains(method, uri) || self.requests.limit.is_some_and(|limit| self.hits >= limit) {
            return false;
        }
        self.matched += 1;
        let applies = self.requests.one_in.is_none_or(|number| scatter(self.matched).is_multiple_of(number));
        self.hits += usize::from(applies);
        applies
    }
}

/// A number without a visible relation to the one before (the finalizer of SplitMix64).
fn scatter(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl Rules {
    pub(super) fn add(&self, requests: Requests, fault: Fault) -> ActiveFault {
        let mut inner = lock(&self.inner);
        inner.next += 1;
        let id = inner.next;
        inner.rules.push(Rule { id, requests, fault, matched: 0, hits: 0 });
        ActiveFault { id, rules: Arc::downgrade(&self.inner) }
    }

    /// Records a request and returns its fault, if any.
    pub(super) fn match_fault(&self, method: &Method, uri: &Uri) -> Option<Fault> {
        let uri = uri.to_string();
        let mut inner = lock(&self.inner);
        let fault = inner.rules.iter_mut().rev().find_map(|rule| rule.applies(method, &uri).then_some(rule.fault));
        inner.seen.push((method.clone(), uri));
        fault
    }

    pub(super) fn count_requests(&self, requests: &Requests) -> usize {
        lock(&self.inner).seen.iter().filter(|(method, uri)| requests.contains(method, uri)).count()
    }
}

/// A fault that lasts until this is dropped.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped"]
pub struct ActiveFault {
    id: u64,
    rules: Weak<Mutex<Inner>>,
}

impl ActiveFault {
    /// The number of requests that it applied to.
    pub fn hits(&self) -> usize {
        let Some(inner) = self.rules.upgrade() else { return 0 };
        lock(&inner).rules.iter().find(|rule| rule.id == self.id).map_or(0, |rule| rule.hits)
    }
}

impl Drop for ActiveFault {
    fn drop(&mut self) {
        if let Some(inner) = self.rules.upgrade() {
            lock(&inner).rules.retain(|rule| rule.id != self.id);
        }
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}
