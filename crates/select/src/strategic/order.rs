//! The order of a merged list: the patch decides about its own elements, the server keeps that of the rest.

use serde_json::Value;

/// The identity of an element: its key's value, or the element itself in a list of scalars.
fn identity<'a>(item: &'a Value, key: Option<&str>) -> Option<&'a Value> {
    match key {
        Some(key) => item.get(key),
        None => Some(item),
    }
}

fn position(list: &[Value], item: &Value, key: Option<&str>) -> Option<usize> {
    let wanted = identity(item, key)?;
    list.iter().position(|other| identity(other, key) == Some(wanted))
}

/// Puts elements named by `patch_order` into that order, and weaves in the others where the server had them.
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
    weave(server_only, patched, server_order, key)
}

/// An element new to the server goes before what is left of the server's own: that is what the API server does.
fn weave(server_only: Vec<Value>, patched: Vec<Value>, server_order: &[Value], key: Option<&str>) -> Vec<Value> {
    let mut woven = Vec::with_capacity(server_only.len() + patched.len());
    let mut ours = server_only.into_iter().peekable();
    for item in patched {
        if let Some(place) = position(server_order, &item, key) {
            while let Some(earlier) =
                ours.next_if(|other| position(server_order, other, key).is_some_and(|before| before < place))
            {
                woven.push(earlier);
            }
        }
        woven.push(item);
    }
    woven.extend(ours);
    woven
}

/// Whether the patch's own list is a subsequence of the order it asks for.
pub(super) fn follows(patch: &[Value], order: &[Value], key: Option<&str>) -> bool {
    if order.is_empty() || patch.is_empty() {
        return true;
    }
    let mut wanted = order.iter();
    patch
        .iter()
        .filter(|item| item.get(super::PATCH).is_none())
        .all(|item| wanted.any(|candidate| identity(candidate, key) == identity(item, key)))
}
