//! All objects that were read at one moment, and what could not be read.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::kind::Kind;
use crate::object::{Object, Reference};

/// A resource that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct UnreadResource {
    /// The resource.
    pub what: String,
    /// The reason.
    pub why: String,
}

/// All objects that were read at one moment.
#[derive(Clone, Debug)]
pub struct ClusterState {
    /// The namespace in which the server keeps its objects.
    pub namespace: String,
    /// The time, by the API server's clock.
    pub now: Timestamp,
    objects: BTreeMap<Kind, Vec<Object>>,
    /// Resources that could not be read.
    pub unseen: Vec<UnreadResource>,
}

impl ClusterState {
    /// An empty state.
    pub fn new(namespace: impl Into<String>, now: Timestamp) -> Self {
        Self { namespace: namespace.into(), now, objects: BTreeMap::new(), unseen: Vec::new() }
    }

    /// The same objects at a later time.
    #[must_use]
    pub fn advanced_by(&self, by: Duration) -> Self {
        let mut older = self.clone();
        older.now = older.now.checked_add(by).unwrap_or(older.now);
        older
    }

    /// Adds an object.
    #[must_use]
    pub fn with(mut self, kind: Kind, value: Value) -> Self {
        self.add(Object::new(kind, value));
        self
    }

    /// Adds or replaces an object.
    pub fn add(&mut self, object: Object) {
        let all = self.objects.entry(object.kind()).or_default();
        let same = |known: &Object| known.name() == object.name() && known.namespace() == object.namespace();
        match all.iter().position(same) {
            Some(place) => all[place] = object,
            None => all.push(object),
        }
    }

    /// Sets all objects of a kind.
    pub fn put(&mut self, kind: Kind, objects: Vec<Object>) {
        self.objects.insert(kind, objects);
    }

    /// Records a resource that could not be read.
    pub fn add_unread(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let unseen = UnreadResource { what: what.into(), why: why.into() };
        if !self.unseen.contains(&unseen) {
            self.unseen.push(unseen);
        }
    }

    /// Whether the objects of a kind were read.
    pub fn was_read(&self, kind: Kind) -> bool {
        self.objects.contains_key(&kind)
    }

    /// All objects of a kind.
    pub fn all(&self, kind: Kind) -> &[Object] {
        self.objects.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// One object.
    pub fn find(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Object> {
        self.all(kind).iter().find(|object| object.name() == name && object.namespace() == namespace)
    }

    /// The object with this identity.
    pub fn get(&self, reference: &Reference) -> Option<&Object> {
        self.find(reference.kind, &reference.namespace, &reference.name)
    }

    /// The time since then; zero if it is in the future.
    pub fn age(&self, then: Timestamp) -> Duration {
        self.now.duration_since(then).try_into().unwrap_or_default()
    }
}
