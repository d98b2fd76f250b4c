//! Strategic merge patch: a merge patch that knows which lists of the API merge, and by which key.
//!
//! ```text
//! containers: [{name: a, image: 1}, {name: b}]        target
//! containers: [{name: a, image: 2}]                   patch
//! containers: [{name: a, image: 2}, {name: b}]        result: merged by name
//! ```
//! Directives a patch may carry: `$patch: replace|delete|merge` in a map or a list element,
//! `$deleteFromPrimitiveList/<field>`, `$setElementOrder/<field>` and `$retainKeys`.
//!
//! Where the API server is stricter (an unknown field is an error there) this is not: the tables name only the fields
//! with marks, and a field nobody marked merges like any map.

mod order;
mod schema;

use serde_json::{Map, Value};

pub use schema::Hint;
use schema::{Field, Type};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

type Object = Map<String, Value>;

/// Why a strategic merge patch could not be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A patch is an object.
    #[error("a strategic merge patch must be an object, not {0}")]
    NotAnObject(&'static str),
    /// `$patch` has a value that means nothing here.
    #[error("unknown $patch directive {directive} at {path}")]
    UnknownDirective {
        /// The directive as written.
        directive: String,
        /// Where in the patch.
        path: String,
    },
    /// An element of a keyed list has no key.
    #[error("element of {path} has no merge key {key:?}")]
    NoMergeKey {
        /// Where in the patch.
        path: String,
        /// The key that list merges by.
        key: &'static str,
    },
    /// A directive's value has the wrong shape.
    #[error("{directive} at {path} is malformed: {problem}")]
    BadDirective {
        /// The directive's name.
        directive: &'static str,
        /// Where in the patch.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A list mixes maps and scalars, or holds lists.
    #[error("elements of {path} are not all of one type")]
    MixedList {
        /// Where in the patch.
        path: String,
    },
}

impl Error {
    /// The stable name of this error.
    pub fn reason(&self) -> &'static str {
        "InvalidStrategicPatch"
    }

    /// A patch that is wrong stays wrong.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// The target with the patch merged into it.
pub fn merge(target: &Value, patch: &Value, hint: Hint) -> Result<Value, Error> {
    let Value::Object(changes) = patch else { return Err(Error::NotAnObject(type_name(patch))) };
    let fields = match target {
        Value::Object(fields) => fields.clone(),
        _ => Object::new(),
    };
    merge_map(fields, changes.clone(), hint.0, &Path::Root).map(Value::Object)
}

/// Where in the patch we are; only written out when something is wrong.
enum Path<'a> {
    Root,
    Below(&'a Path<'a>, &'a str),
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Path::Root => f.write_str("."),
            Path::Below(Path::Root, name) => write!(f, ".{name}"),
            Path::Below(parent, name) => write!(f, "{parent}.{name}"),
        }
    }
}

fn merge_map(mut target: Object, mut patch: Object, ty: &'static Type, path: &Path<'_>) -> Result<Object, Error> {
    match patch.remove(PATCH) {
        None => {}
        Some(directive) => match directive.as_str() {
            Some("replace") => return Ok(patch),
            Some("delete") => return Ok(Object::new()),
            Some("merge") => {}
            _ => return Err(Error::UnknownDirective { directive: directive.to_string(), path: path.to_string() }),
        },
    }
    retain_keys(&mut target, &mut patch, path)?;
    for name in names_with_prefix(&patch, SET_ORDER) {
        merge_ordered_list(&mut target, &mut patch, &name, ty, path)?;
    }
    for (name, change) in patch {
        merge_field(&mut target, &name, change, ty, path)?;
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
    ty: &'static Type,
    path: &Path<'_>,
) -> Result<(), Error> {
    if let Some(list) = name.strip_prefix(DELETE_FROM) {
        return delete_from_list(target, list, &change, path);
    }
    if change.is_null() {
        target.remove(name);
        return Ok(());
    }
    let here = Path::Below(path, name);
    let merged = match (target.remove(name), change) {
        (Some(Value::Object(old)), Value::Object(new)) => match ty.field(name) {
            Some(Field::ReplacedMap) => Some(Value::Object(new)),
            _ => Some(Value::Object(merge_map(old, new, ty.below(name), &here)?)),
        },
        (Some(Value::Array(old)), Value::Array(new)) => Some(Value::Array(merge_list(old, new, name, ty, &here)?)),
        (_, new) => without_directives(new),
    };
    if let Some(merged) = merged {
        target.insert(name.to_owned(), merged);
    }
    Ok(())
}

/// `$retainKeys` lists the keys that may stay: how a patch switches a union from one member to another.
fn retain_keys(target: &mut Object, patch: &mut Object, path: &Path<'_>) -> Result<(), Error> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = |problem| Error::BadDirective { directive: RETAIN_KEYS, path: path.to_string(), problem };
    let keys = directive.as_array().ok_or_else(|| bad("it must be a list"))?;
    let kept = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    let unlisted = |(name, value): (&String, &Value)| {
        !value.is_null() && !name.starts_with(DELETE_FROM) && !name.starts_with(SET_ORDER) && !kept(name)
    };
    if patch.iter().any(unlisted) {
        return Err(bad("the patch sets a field that it does not list"));
    }
    target.retain(|name, _| kept(name));
    Ok(())
}

/// `$setElementOrder/<name>` together with the list it orders.
fn merge_ordered_list(
    target: &mut Object,
    patch: &mut Object,
    name: &str,
    ty: &'static Type,
    path: &Path<'_>,
) -> Result<(), Error> {
    let bad = |problem| Error::BadDirective { directive: "$setElementOrder", path: path.to_string(), problem };
    let Some(Value::Array(order)) = patch.remove(&format!("{SET_ORDER}{name}")) else {
        return Err(bad("it must be a list"));
    };
    let key = match ty.field(name) {
        Some(Field::Keyed(key, _)) => Some(key),
        _ => None,
    };
    let here = Path::Below(path, name);
    let list = |value: Option<Value>| match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(_) => Err(bad("the field it orders is not a list")),
    };
    let (old, new) = (list(target.get(name).cloned())?, list(patch.remove(name))?);
    if !order::follows(new.as_deref().unwrap_or_default(), &order, key) {
        return Err(bad("the order of the patch's own list disagrees with it"));
    }
    let before = old.clone().unwrap_or_default();
    let merged = match (old, new) {
        (None, None) => return Ok(()),
        (Some(old), None) => old,
        (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
        (Some(old), Some(new)) => merge_list(old, new, name, ty, &here)?,
    };
    target.insert(name.to_owned(), Value::Array(order::arrange(merged, &order, &before, key)));
    Ok(())
}

fn delete_from_list(target: &mut Object, list: &str, unwanted: &Value, path: &Path<'_>) -> Result<(), Error> {
    let Value::Array(unwanted) = unwanted else {
        let problem = "it must be a list";
        return Err(Error::BadDirective { directive: "$deleteFromPrimitiveList", path: path.to_string(), problem });
    };
    if let Some(Value::Array(items)) = target.get_mut(list) {
        items.retain(|item| !unwanted.contains(item));
    }
    Ok(())
}

fn merge_list(
    old: Vec<Value>,
    new: Vec<Value>,
    name: &str,
    ty: &'static Type,
    path: &Path<'_>,
) -> Result<Vec<Value>, Error> {
    match ty.field(name) {
        Some(Field::Set) => merge_set(&old, &new, path),
        Some(Field::Keyed(key, element)) => merge_keyed(old, new, key, element, path),
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
    Ok(order::arrange(merged, new, old, None))
}

fn merge_keyed(
    mut old: Vec<Value>,
    new: Vec<Value>,
    key: &'static str,
    element: &'static Type,
    path: &Path<'_>,
) -> Result<Vec<Value>, Error> {
    if old.iter().chain(&new).any(|item| !item.is_object()) {
        return Err(Error::MixedList { path: path.to_string() });
    }
    let (changes, replace) = take_directives(&mut old, new, key, path)?;
    if replace {
        return Ok(changes);
    }
    let mut merged = old.clone();
    for change in &changes {
        merge_element(&mut merged, change, key, element, path)?;
    }
    Ok(order::arrange(merged, &changes, &old, Some(key)))
}

/// Carries out the `$patch` elements of a list; what is left are elements to merge, or the whole new list.
fn take_directives(
    old: &mut Vec<Value>,
    new: Vec<Value>,
    key: &'static str,
    path: &Path<'_>,
) -> Result<(Vec<Value>, bool), Error> {
    let (mut changes, mut replace) = (Vec::with_capacity(new.len()), false);
    for item in new {
        match item.get(PATCH).map(|directive| directive.as_str().unwrap_or_default()) {
            None => changes.push(item),
            Some("replace") => replace = true,
            Some("delete") => {
                let unwanted = item.get(key).ok_or_else(|| Error::NoMergeKey { path: path.to_string(), key })?;
                old.retain(|element| element.get(key) != Some(unwanted));
            }
            Some(_) => {
                let directive = item[PATCH].to_string();
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
    element: &'static Type,
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

/// What a patch means where there was nothing before: directives and nulls fall away.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            if fields.get(PATCH).and_then(Value::as_str) == Some("delete") {
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
    name == PATCH || name == RETAIN_KEYS || name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
