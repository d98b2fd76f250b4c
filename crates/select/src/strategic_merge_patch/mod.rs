//! Strategic merge patch: lists of the Kubernetes API merge by key.
//!
//! ```text
//! containers: [{name: a, image: 1}, {name: b}]        target
//! containers: [{name: a, image: 2}]                   patch
//! containers: [{name: a, image: 2}, {name: b}]        result: merged by name
//! ```
//! Supported directives: `$patch: replace|delete|merge` in a map or a list element,
//! `$deleteFromPrimitiveList/<field>`, `$setElementOrder/<field>` and `$retainKeys`.
//!
//! The API server rejects unknown fields; this implementation does not: its tables list only fields with a `patchStrategy`, and
//! other maps merge.

mod element_order;
mod patch_schema;

use serde_json::{Map, Value};

pub use patch_schema::PatchSchema;
use patch_schema::{PatchMeta, PatchStrategy};

use crate::json_type::json_type;

const PATCH_DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PREFIX: &str = "$deleteFromPrimitiveList/";
const SET_ORDER_PREFIX: &str = "$setElementOrder/";

type Object = Map<String, Value>;

/// The error of applying a strategic merge patch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The patch is not an object.
    #[error("a strategic merge patch must be an object, not {0}")]
    NotAnObject(&'static str),
    /// Unknown value of `$patch`.
    #[error("unknown $patch directive {directive} at {path}")]
    UnknownDirective {
        /// The directive as written.
        directive: String,
        /// Path in the patch.
        path: String,
    },
    /// An element of a keyed list has no key.
    #[error("element of {path} has no merge key {key:?}")]
    NoMergeKey {
        /// Path in the patch.
        path: String,
        /// The merge key of the list.
        key: &'static str,
    },
    /// Malformed value of a directive.
    #[error("malformed {directive} at {path}: {problem}")]
    MalformedDirective {
        /// The directive's name.
        directive: &'static str,
        /// Path in the patch.
        path: String,
        /// The cause.
        problem: &'static str,
    },
    /// A list mixes maps and scalars, or contains lists.
    #[error("elements of {path} are not all of one type")]
    MixedList {
        /// Path in the patch.
        path: String,
    },
}

impl Error {
    /// The stable name of this error.
    pub fn reason(&self) -> &'static str {
        "InvalidStrategicPatch"
    }

    /// Always false: the patch has to be changed.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// The target with the patch merged into it.
pub fn merge(target: &Value, patch: &Value, hint: PatchSchema) -> Result<Value, Error> {
    let Value::Object(changes) = patch else { return Err(Error::NotAnObject(json_type(patch))) };
    let fields = match target {
        Value::Object(fields) => fields.clone(),
        _ => Object::new(),
    };
    merge_map(fields, changes.clone(), hint.0, &Path::Root).map(Value::Object)
}

/// The current path in the patch; formatted only for errors.
enum Path<'a> {
    Root,
    Child(&'a Path<'a>, &'a str),
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Path::Root => f.write_str("."),
            Path::Child(Path::Root, name) => write!(f, ".{name}"),
            Path::Child(parent, name) => write!(f, "{parent}.{name}"),
        }
    }
}

fn merge_map(
    mut target: Object,
    mut patch: Object,
    meta: &'static PatchMeta,
    path: &Path<'_>,
) -> Result<Object, Error> {
    match patch.remove(PATCH_DIRECTIVE) {
        None => {}
        Some(directive) => match directive.as_str() {
            Some("replace") => return Ok(patch),
            Some("delete") => return Ok(Object::new()),
            Some("merge") => {}
            _ => return Err(Error::UnknownDirective { directive: directive.to_string(), path: path.to_string() }),
        },
    }
    retain_keys(&mut target, &mut patch, path)?;
    for name in names_with_prefix(&patch, SET_ORDER_PREFIX) {
        merge_ordered_list(&mut target, &mut patch, &name, meta, path)?;
    }
    for (name, change) in patch {
        merge_field(&mut target, &name, change, meta, path)?;
    }
    Ok(target)
}

fn names_with_prefix(patch: &Object, prefix: &str) -> Vec<String> {
    patch.keys().filter_map(|key| key.strip_prefix(prefix)).map(str::to_owned).collect()
}

fn merge_field(
    target: &mut Object,
    name: &str,
    change: Value,
    meta: &'static PatchMeta,
    path: &Path<'_>,
) -> Result<(), Error> {
    if let Some(list) = name.strip_prefix(DELETE_FROM_PREFIX) {
        return delete_from_list(target, list, &change, path);
    }
    if change.is_null() {
        target.remove(name);
        return Ok(());
    }
    let field_path = Path::Child(path, name);
    let merged = match (target.remove(name), change) {
        (Some(Value::Object(old)), Value::Object(new)) => match meta.field(name) {
            Some(PatchStrategy::ReplacedMap) => Some(Value::Object(new)),
            _ => Some(Value::Object(merge_map(old, new, meta.child(name), &field_path)?)),
        },
        (Some(Value::Array(old)), Value::Array(new)) => {
            Some(Value::Array(merge_list(old, new, name, meta, &field_path)?))
        }
        (_, new) => without_directives(new),
    };
    if let Some(merged) = merged {
        target.insert(name.to_owned(), merged);
    }
    Ok(())
}

/// `$retainKeys` lists the keys to keep: a patch uses it to switch a union to another member.
fn retain_keys(target: &mut Object, patch: &mut Object, path: &Path<'_>) -> Result<(), Error> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = |problem| Error::MalformedDirective { directive: RETAIN_KEYS, path: path.to_string(), problem };
    let keys = directive.as_array().ok_or_else(|| malformed("must be a list"))?;
    let retained = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    let unlisted = |(name, value): (&String, &Value)| {
        !value.is_null()
            && !name.starts_with(DELETE_FROM_PREFIX)
            && !name.starts_with(SET_ORDER_PREFIX)
            && !retained(name)
    };
    if patch.iter().any(unlisted) {
        return Err(malformed("the patch sets a field that is not listed"));
    }
    target.retain(|name, _| retained(name));
    Ok(())
}

/// Merges a list with a `$setElementOrder/<name>` directive.
fn merge_ordered_list(
    target: &mut Object,
    patch: &mut Object,
    name: &str,
    meta: &'static PatchMeta,
    path: &Path<'_>,
) -> Result<(), Error> {
    let malformed =
        |problem| Error::MalformedDirective { directive: "$setElementOrder", path: path.to_string(), problem };
    let Some(Value::Array(order)) = patch.remove(&format!("{SET_ORDER_PREFIX}{name}")) else {
        return Err(malformed("must be a list"));
    };
    let key = match meta.field(name) {
        Some(PatchStrategy::Keyed(key, _)) => Some(key),
        _ => None,
    };
    let field_path = Path::Child(path, name);
    let list = |value: Option<Value>| match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(_) => Err(malformed("the ordered field is not a list")),
    };
    let (old, new) = (list(target.get(name).cloned())?, list(patch.remove(name))?);
    if !element_order::is_subsequence(new.as_deref().unwrap_or_default(), &order, key) {
        return Err(malformed("the list in the patch has a different order"));
    }
    let before = old.clone().unwrap_or_default();
    let merged = match (old, new) {
        (None, None) => return Ok(()),
        (Some(old), None) => old,
        (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
        (Some(old), Some(new)) => merge_list(old, new, name, meta, &field_path)?,
    };
    target.insert(name.to_owned(), Value::Array(element_order::arrange(merged, &order, &before, key)));
    Ok(())
}

fn delete_from_list(target: &mut Object, list: &str, deleted: &Value, path: &Path<'_>) -> Result<(), Error> {
    let Value::Array(deleted) = deleted else {
        let problem = "must be a list";
        return Err(Error::MalformedDirective {
            directive: "$deleteFromPrimitiveList",
            path: path.to_string(),
            problem,
        });
    };
    if let Some(Value::Array(items)) = target.get_mut(list) {
        items.retain(|item| !deleted.contains(item));
    }
    Ok(())
}

fn merge_list(
    old: Vec<Value>,
    new: Vec<Value>,
    name: &str,
    meta: &'static PatchMeta,
    path: &Path<'_>,
) -> Result<Vec<Value>, Error> {
    match meta.field(name) {
        Some(PatchStrategy::Set) => merge_set(&old, &new, path),
        Some(PatchStrategy::Keyed(key, element)) => merge_keyed(old, new, key, element, path),
        _ => Ok(new),
    }
}

fn merge_set(old: &[Value], new: &[Value], path: &Path<'_>) -> Result<Vec<Value>, Error> {
    if old.iter().chain(new).any(|item| item.is_object() || item.is_array()) {
        return Err(Error::MixedList { path: path.to_string() });
    }
    let mut merged: Vec<Value> = Vec::with_capacity(old.len() + new.len());
    for item in old.iter().chain(new) {
        if !merged.contains(item) {
            merged.push(item.clone());
        }
    }
    Ok(element_order::arrange(merged, new, old, None))
}

fn merge_keyed(
    mut old: Vec<Value>,
    new: Vec<Value>,
    key: &'static str,
    element: &'static PatchMeta,
    path: &Path<'_>,
) -> Result<Vec<Value>, Error> {
    if old.iter().chain(&new).any(|item| !item.is_object()) {
        return Err(Error::MixedList { path: path.to_string() });
    }
    let (changes, replace) = apply_list_directives(&mut old, new, key, path)?;
    if replace {
        return Ok(changes);
    }
    let mut merged = old.clone();
    for change in &changes {
        merge_element(&mut merged, change, key, element, path)?;
    }
    Ok(element_order::arrange(merged, &changes, &old, Some(key)))
}

/// Applies the `$patch` elements of a list; returns the elements to merge, or the whole new list.
fn apply_list_directives(
    old: &mut Vec<Value>,
    new: Vec<Value>,
    key: &'static str,
    path: &Path<'_>,
) -> Result<(Vec<Value>, bool), Error> {
    let (mut changes, mut replace) = (Vec::with_capacity(new.len()), false);
    for item in new {
        match item.get(PATCH_DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
            None => changes.push(item),
            Some("replace") => replace = true,
            Some("delete") => {
                let deleted = item.get(key).ok_or_else(|| Error::NoMergeKey { path: path.to_string(), key })?;
                old.retain(|element| element.get(key) != Some(deleted));
            }
            Some(_) => {
                let directive = item[PATCH_DIRECTIVE].to_string();
                return Err(Error::UnknownDirective { directive, path: path.to_string() });
            }
        }
    }
    Ok((changes, replace))
}

fn merge_element(
    merged: &mut Vec<Value>,
    change: &Value,
    key: &'static str,
    element: &'static PatchMeta,
    path: &Path<'_>,
) -> Result<(), Error> {
    let id = change.get(key).ok_or_else(|| Error::NoMergeKey { path: path.to_string(), key })?;
    let found = merged.iter_mut().find(|item| item.get(key) == Some(id));
    match (found, change) {
        (Some(Value::Object(item)), Value::Object(change)) => {
            *item = merge_map(std::mem::take(item), change.clone(), element, path)?;
        }
        _ => merged.extend(without_directives(change.clone())),
    }
    Ok(())
}

/// The value of a patch for an absent field: without directives and nulls.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            if fields.get(PATCH_DIRECTIVE).and_then(Value::as_str) == Some("delete") {
                return None;
            }
            let kept = fields.into_iter().filter(|(name, value)| !value.is_null() && !is_directive(name));
            Some(Value::Object(kept.filter_map(|(name, value)| Some((name, without_directives(value)?))).collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

fn is_directive(name: &str) -> bool {
    name == PATCH_DIRECTIVE
        || name == RETAIN_KEYS
        || name.starts_with(DELETE_FROM_PREFIX)
        || name.starts_with(SET_ORDER_PREFIX)
}
