//! The key of an object: resource, namespace, name.

use std::sync::Arc;

/// Identifies one stored object. `resource` is `pods` or `backups.velero.io`; all versions of a kind share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub resource: Arc<str>,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(resource: &Arc<str>, namespace: &str, name: &str) -> Self {
        Self { resource: Arc::clone(resource), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub fn namespace_object(name: &str) -> Self {
        Self { resource: "namespaces".into(), namespace: String::new(), name: name.to_owned() }
    }

    pub fn encode(&self) -> Vec<u8> {
        [self.resource.as_bytes(), self.namespace.as_bytes(), self.name.as_bytes()].join(&0)
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(bytes).ok()?.split('\0');
        let (resource, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { resource: resource.into(), namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

/// A range of keys: a resource, in one namespace or in all.
#[derive(Clone, Debug)]
pub(crate) struct KeyRange {
    pub start: Vec<u8>,
    pub end: Vec<u8>,
}

impl KeyRange {
    pub fn of(resource: &str, namespace: Option<&str>) -> Self {
        let mut start = resource.as_bytes().to_vec();
        if let Some(namespace) = namespace {
            start.push(0);
            start.extend_from_slice(namespace.as_bytes());
        }
        let mut end = start.clone();
        start.push(0);
        end.push(1);
        Self { start, end }
    }

    /// Exactly one key.
    pub fn single(key: &Key) -> Self {
        let start = key.encode();
        let end = [start.as_slice(), &[0]].concat();
        Self { start, end }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && key < self.end.as_slice()
    }

    /// The part of the range after `key`.
    pub fn after(mut self, key: &[u8]) -> Self {
        self.start = key.to_vec();
        self.start.push(0);
        self
    }
}
