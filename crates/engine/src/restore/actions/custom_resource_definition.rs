//! CustomResourceDefinitions: `preserveUnknownFields: true`, which v1 rejects, is moved into the schemas.

use serde_json::{Value, json};

use super::{ActionEffect, list_at, map_at, text};

pub(super) fn apply(item: &mut Value, _: &Value) -> ActionEffect {
    let preserves = item.pointer("/spec/preserveUnknownFields") == Some(&json!(true));
    if text(item, "/apiVersion") != "apiextensions.k8s.io/v1" || !preserves {
        return ActionEffect::default();
    }
    if let Some(spec) = map_at(item, "/spec") {
        spec.insert("preserveUnknownFields".into(), json!(false));
    }
    for version in list_at(item, "/spec/versions") {
        if let Some(schema) = map_at(version, "/schema/openAPIV3Schema") {
            schema.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
        }
    }
    ActionEffect::default()
}

#[cfg(test)]
mod tests {
    use super::super::applied;
    use super::*;

    #[test]
    fn preserve_unknown_fields_is_moved_into_the_schemas() {
        let before = json!({"apiVersion": "apiextensions.k8s.io/v1", "spec": {"preserveUnknownFields": true,
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}}, {"name": "v2"}]}});
        let after = applied(apply, before);
        assert_eq!(after["spec"]["preserveUnknownFields"], false);
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(
            after["spec"]["versions"],
            json!([{"name": "v1", "schema": {"openAPIV3Schema": schema}}, {"name": "v2"}])
        );
    }

    #[test]
    fn other_definitions_are_not_changed() {
        for version in ["v1", "v1beta1"] {
            let preserve = version != "v1";
            let definition = json!({"apiVersion": format!("apiextensions.k8s.io/{version}"), "spec": {
                "preserveUnknownFields": preserve, "versions": [{"schema": {"openAPIV3Schema": {}}}]}});
            assert_eq!(applied(apply, definition.clone()), definition);
        }
    }
}
