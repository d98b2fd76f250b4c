//! JSON merge patch (RFC 7396): maps merge, null removes, other values replace.

use serde_json::{Map, Value};

/// The target with the patch merged into it.
#[must_use]
pub fn apply(target: &Value, patch: &Value) -> Value {
    let mut result = target.clone();
    apply_in_place(&mut result, patch);
    result
}

/// As [`apply`], in place.
pub fn apply_in_place(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            apply_in_place(fields.entry(name.as_str()).or_insert(Value::Null), change);
        }
    }
}
