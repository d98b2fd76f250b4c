//! Fields that mean something and that this version does not carry out: refused by name, never ignored.

use serde_json::Value;

/// The fields among `fields` that ask for something, each as a fault.
pub fn faults(spec: &Value, fields: &[(&str, &str)]) -> Vec<String> {
    let asks = |field: &str| spec.pointer(&format!("/{}", field.replace('.', "/"))).is_some_and(asks_for_something);
    fields
        .iter()
        .filter(|(field, _)| asks(field))
        .map(|(field, what)| format!("spec.{field}: {what} is not supported by this version"))
        .collect()
}

/// Clients write defaults: false, null and empty ask for nothing.
fn asks_for_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(asks_for_something),
        Value::Object(fields) => fields.values().any(asks_for_something),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_clients_write_by_default_asks_for_nothing() {
        let spec = json!({"hooks": {"resources": []}, "snapshotMoveData": false, "datamover": "", "x": null});
        let fields = [("hooks", "hooks"), ("snapshotMoveData", "data movement"), ("datamover", "a mover"), ("x", "x")];
        assert_eq!(faults(&spec, &fields), Vec::<String>::new());
    }

    #[test]
    fn what_would_be_ignored_is_refused_by_name() {
        let spec = json!({"hooks": {"resources": [{"name": "freeze"}]}});
        assert_eq!(
            faults(&spec, &[("hooks.resources", "running hooks")]),
            ["spec.hooks.resources: running hooks is not supported by this version"]
        );
    }
}
