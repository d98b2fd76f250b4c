//! Everything that was read at one moment, and what could not be.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::kind::Kind;
use crate::object::{Object, Reference};

/// What could not be looked at, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unseen {
    /// What.
    pub what: String,
    /// Why not.
    pub why: String,
}

/// Everything that was read at one moment.
#[derive(Clone, Debug)]
pub struct World {
    /// The namespace in which the server keeps its objects.
    pub namespace: String,
    /// The moment.
    pub now: Timestamp,
    objects: BTreeMap<Kind, Vec<Object>>,
    /// What could not be looked at.
    pub unseen: Vec<Unseen>,
}

impl World {
    /// An empty one.
    pub fn new(namespace: impl Into<String>, now: Timestamp) -> Self {
        Self { namespace: namespace.into(), now, objects: BTreeMap::new(), unseen: Vec::new() }
    }

    /// The same, so much later.
    #[must_use]
    pub fn aged(&self, by: Duration) -> Self {
        let mut older = self.clone();
        older.now = older.now.checked_add(by).unwrap_or(older.now);
        older
    }

    /// With one more object.
    #[must_use]
    pub fn with(mut self, kind: Kind, value: Value) -> Self {
        self.add(Object::new(kind, value));
        self
    }

    /// Adds an object, or replaces what was known of it.
    pub fn add(&mut self, object: Object) {
        let all = self.objects.entry(object.kind()).or_default();
        let same = |known: &Object| known.name() == object.name() && known.namespace() == object.namespace();
        match all.iter().position(same) {
            Some(place) => all[place] = object,
            None => all.push(object),
        }
    }

    /// Puts all objects of a kind in.
    pub fn put(&mut self, kind: Kind, objects: Vec<Object>) {
        self.objects.insert(kind, objects);
    }

    /// Notes what could not be looked at.
    pub fn miss(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let unseen = Unseen { what: what.into(), why: why.into() };
        if !self.unseen.contains(&unseen) {
            self.unseen.push(unseen);
        }
    }

    /// Whether the kind was looked at, whatever was found.
    pub fn has_seen(&self, kind: Kind) -> bool {
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

    /// The object that is referred to.
    pub fn get(&self, reference: &Reference) -> Option<&Object> {
        self.find(reference.kind, &reference.namespace, &reference.name)
    }

    /// How long ago that was; nothing if it lies ahead.
    pub fn age(&self, then: Timestamp) -> Duration {
        self.now.duration_since(then).try_into().unwrap_or_default()
    }
}
