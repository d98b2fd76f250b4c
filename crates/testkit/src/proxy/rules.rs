//! Which requests meet which fault.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::{Method, Uri};

/// What is done to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is passed on after this time.
    Latency(Duration),
    /// It is answered with this status; the server never sees it.
    Status(u16),
    /// It is never answered; the server never sees it.
    Hang,
    /// The connection is closed instead of an answer; the server never sees it.
    Refuse,
    /// The server does what is asked, and the connection is closed instead of its answer.
    LoseAnswer,
    /// The answer's body ends after so many bytes, with its connection.
    CutAnswer(usize),
    /// The answer's body stands still after so many bytes.
    HangAnswer(usize),
    /// The server gets so many bytes of the request's body, then its connection ends.
    CutRequest(usize),
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
    /// All of them.
    pub fn all() -> Self {
        Self::default()
    }

    /// Those with this method.
    pub fn with_method(method: Method) -> Self {
        Self { method: Some(method), ..Self::default() }
    }

    /// Those of them whose path and query contain this.
    #[must_use]
    pub fn containing(mut self, fragment: impl Into<String>) -> Self {
        self.fragments.push(fragment.into());
        self
    }

    /// Only the first so many of them.
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

/// All rules of a proxy, and what it has seen.
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
    met: u64,
    hits: usize,
}

impl Rule {
    /// Whether the fault is for this request, which is counted.
    fn applies(&mut self, method: &Method, uri: &str) -> bool {
        if !self.requests.contains(method, uri) || self.requests.limit.is_some_and(|limit| self.hits >= limit) {
            return false;
        }
        self.met += 1;
        let applies = self.requests.one_in.is_none_or(|number| scatter(self.met).is_multiple_of(number));
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
    pub(super) fn add(&self, requests: Requests, fault: Fault) -> Active {
        let mut inner = lock(&self.inner);
        inner.next += 1;
        let id = inner.next;
        inner.rules.push(Rule { id, requests, fault, met: 0, hits: 0 });
        Active { id, rules: Arc::downgrade(&self.inner) }
    }

    /// Notes a request and says what is to be done to it.
    pub(super) fn meet(&self, method: &Method, uri: &Uri) -> Option<Fault> {
        let uri = uri.to_string();
        let mut inner = lock(&self.inner);
        let fault = inner.rules.iter_mut().rev().find_map(|rule| rule.applies(method, &uri).then_some(rule.fault));
        inner.seen.push((method.clone(), uri));
        fault
    }

    pub(super) fn seen(&self, requests: &Requests) -> usize {
        lock(&self.inner).seen.iter().filter(|(method, uri)| requests.contains(method, uri)).count()
    }
}

/// A fault that lasts until this is dropped.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped"]
pub struct Active {
    id: u64,
    rules: Weak<Mutex<Inner>>,
}

impl Active {
    /// How many requests it has met.
    pub fn hits(&self) -> usize {
        let Some(inner) = self.rules.upgrade() else { return 0 };
        lock(&inner).rules.iter().find(|rule| rule.id == self.id).map_or(0, |rule| rule.hits)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if let Some(inner) = self.rules.upgrade() {
            lock(&inner).rules.retain(|rule| rule.id != self.id);
        }
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}
