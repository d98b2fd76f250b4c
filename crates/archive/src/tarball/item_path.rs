//! Paths inside the tarball.

use crate::Error;

/// The type of an entry, by its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<'a> {
    /// The format version.
    Version,
    /// An object.
    Item(ItemPath<'a>),
    /// A copy of an object under the directory of an API version.
    PreferredVersionCopy,
    /// An unknown file.
    Other,
}

/// The path of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemPath<'a> {
    /// `pods`, `deployments.apps`.
    pub group_resource: &'a str,
    /// `None` for cluster-scoped objects.
    pub namespace: Option<&'a str>,
    /// The name of the object.
    pub name: &'a str,
}

impl ItemPath<'_> {
    /// Writes the path to `buffer`, under a version directory if given.
    pub(super) fn write(&self, version_directory: Option<&str>, buffer: &mut String) {
        buffer.clear();
        buffer.push_str("resources/");
        buffer.push_str(self.group_resource);
        buffer.push('/');
        if let Some(directory) = version_directory {
            buffer.push_str(directory);
            buffer.push('/');
        }
        match self.namespace {
            Some(namespace) => {
                buffer.push_str("namespaces/");
                buffer.push_str(namespace);
            }
            None => buffer.push_str("cluster"),
        }
        buffer.push('/');
        buffer.push_str(self.name);
        buffer.push_str(".json");
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        check_component("group-resource", self.group_resource)?;
        check_component("name", self.name)?;
        self.namespace.map_or(Ok(()), |namespace| check_component("namespace", namespace))
    }
}

/// Checks that a name is a valid path component.
pub(super) fn check_component(what: &'static str, name: &str) -> Result<(), Error> {
    let invalid = name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']);
    if invalid { Err(Error::InvalidName { what, name: name.to_owned() }) } else { Ok(()) }
}

/// Validates the path of an entry.
pub(super) fn validate_path(raw: &[u8]) -> Result<&str, Error> {
    let unsafe_path = |problem| Error::UnsafePath { path: String::from_utf8_lossy(raw).into_owned(), problem };
    let path = str::from_utf8(raw).map_err(|_| unsafe_path("not UTF-8"))?;
    if path.contains('\0') {
        return Err(unsafe_path("contains a null byte"));
    }
    if path.starts_with('/') {
        return Err(unsafe_path("absolute path"));
    }
    // Paths of archives repacked with `tar` start with "./" and include directories.
    let path = path.strip_prefix("./").unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.split('/').any(|part| part == "..") {
        return Err(unsafe_path("contains \"..\""));
    }
    if path.split('/').any(|part| part.is_empty() || part == ".") && !path.is_empty() && path != "." {
        return Err(unsafe_path("empty component"));
    }
    Ok(path)
}

/// The type of the entry with a validated path.
pub(super) fn classify(path: &str) -> Entry<'_> {
    if path == super::VERSION_PATH {
        return Entry::Version;
    }
    let Some((group_resource, rest)) = path.strip_prefix("resources/").and_then(|rest| rest.split_once('/')) else {
        return Entry::Other;
    };
    if let Some((namespace, name)) = parse_scope(rest) {
        return Entry::Item(ItemPath { group_resource, namespace, name });
    }
    match rest.split_once('/').and_then(|(_version, rest)| parse_scope(rest)) {
        Some(_) => Entry::PreferredVersionCopy,
        None => Entry::Other,
    }
}

/// `namespaces/<ns>/<name>.json` or `cluster/<name>.json`.
fn parse_scope(rest: &str) -> Option<(Option<&str>, &str)> {
    let (scope, rest) = rest.split_once('/')?;
    let (namespace, file) = match scope {
        "cluster" => (None, rest),
        "namespaces" => rest.split_once('/').map(|(namespace, file)| (Some(namespace), file))?,
        _ => return None,
    };
    let name = file.strip_suffix(".json").filter(|name| !name.is_empty() && !name.contains('/'))?;
    Some((namespace, name))
}
