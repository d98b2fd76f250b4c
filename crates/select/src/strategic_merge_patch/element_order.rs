//! The order of a merged list: elements of the patch in the order of the patch, the others in that of the server.

use serde_json::Value;

/// The identity of an element: the value of its merge key, or the element itself in a list of scalars.
fn identity<'a>(item: &'a Value, key: Option<&str>) -> Option<&'a Value> {
    match key {
        Some(key) => item.get(key),
        None => Some(item),
    }
}

fn position(list: &[Value], item: &Value, key: Option<&str>) -> Option<usize> {
    let id = identity(item, key)?;
    list.iter().position(|other| identity(other, key) == Some(id))
}

/// Puts elements named by `patch_order` into that order, and interleaves the others at their server positions.
pub(super) fn arrange(
    merged: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Vec<Value> {
    let (mut patched, mut server_only): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| position(patch_order, item, key).is_some());
    patched.sort_by_key(|item| position(patch_order, item, key));
    server_only.sort_by_key(|item| position(server_order, item, key));
    interleave(server_only, patched, server_order, key)
}

/// A new element goes before the remaining elements of the server, as in the API server.
fn interleave(server_only: Vec<Value>, patched: Vec<Value>, server_order: &[Value], key: Option<&str>) -> Vec<Value> {
    let mut result = Vec::with_capacity(server_only.len() + patched.len());
    let mut remaining = server_only.into_iter().peekable();
    for item in patched {
        if let Some(index) = position(server_order, &item, key) {
            while let Some(earlier) =
                remaining.next_if(|other| position(server_order, other, key).is_some_and(|before| before < index))
            {
                result.push(earlier);
            }
        }
        result.push(item);
    }
    result.extend(remaining);
    result
}

/// Whether the list in the patch is a subsequence of the requested order.
pub(super) fn is_subsequence(patch: &[Value], order: &[Value], key: Option<&str>) -> bool {
    if order.is_empty() || patch.is_empty() {
        return true;
    }
    let mut expected = order.iter();
    patch
        .iter()
        .filter(|item| item.get(super::PATCH_DIRECTIVE).is_none())
        .all(|item| expected.any(|candidate| identity(candidate, key) == identity(item, key)))
}
