//! Definitions: one that was made before schemas were mandatory must say in its schemas what it said at the top.

use serde_json::{Value, json};

use super::{Said, list_at, map_at, text};

pub(super) fn act(item: &mut Value, _: &Value) -> Said {
    let asks = item.pointer("/spec/preserveUnknownFields") == Some(&json!(true));
    if text(item, "/apiVersion") != "apiextensions.k8s.io/v1" || !asks {
        return Said::default();
    }
    if let Some(spec) = map_at(item, "/spec") {
        spec.insert("preserveUnknownFields".into(), json!(false));
    }
    for version in list_at(item, "/spec/versions") {
        if let Some(schema) = map_at(version, "/schema/openAPIV3Schema") {
            schema.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
        }
    }
    Said::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acted(mut item: Value) -> Value {
        act(&mut item, &Value::Null);
        item
    }

    #[test]
    fn unknown_fields_are_kept_by_every_schema_instead() {
        let before = json!({"apiVersion": "apiextensions.k8s.io/v1", "spec": {"preserveUnknownFields": true,
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}}, {"name": "v2"}]}});
        let after = acted(before);
        assert_eq!(after["spec"]["preserveUnknownFields"], false);
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(
            after["spec"]["versions"],
            json!([{"name": "v1", "schema": {"openAPIV3Schema": schema}}, {"name": "v2"}])
        );
    }

    #[test]
    fn other_definitions_are_left_as_they_are() {
        for version in ["v1", "v1beta1"] {
            let preserve = version != "v1";
            let definition = json!({"apiVersion": format!("apiextensions.k8s.io/{version}"), "spec": {
                "preserveUnknownFields": preserve, "versions": [{"schema": {"openAPIV3Schema": {}}}]}});
            assert_eq!(acted(definition.clone()), definition);
        }
    }
}
