//! Makes a derived schema structural, and nullable where Go writes `null`.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use super::definitions::Definition;

/// Fields that upstream gives the format `int64`; all other integers have none.
const INT64_FIELDS: &[&str] = &["bytesDone", "totalBytes", "incrementalBytes", "snapshotSize"];
/// Fields of Kubernetes' own types, which are applied as a whole.
const ATOMIC_MAPS: &[&str] =
    &["labelSelector", "orLabelSelectors", "pod", "resourcePolicy", "resourceModifier", "credential", "caCertRef"];
const ATOMIC_LISTS: &[&str] = &["matchExpressions", "values"];

pub(super) fn normalize(root: &mut JSONSchemaProps, definition: &Definition, group: &str) {
    let normalizer = SchemaNormalizer { velero: group == "velero.io" };
    normalizer.visit("", root);
    // Upstream requires no top-level field.
    root.required = None;
    root.nullable = None;
    add_object_fields(root);
    for (path, fields) in definition.required {
        require(root, path, fields);
    }
}

struct SchemaNormalizer {
    velero: bool,
}

impl SchemaNormalizer {
    /// `name` is that of the property the schema is for, also for the items of a list.
    fn visit(&self, name: &str, schema: &mut JSONSchemaProps) {
        schema.default = None;
        schema.title = None;
        // The derive lists null among the values of an optional enum; upstream does not.
        schema.enum_.iter_mut().for_each(|values| values.retain(|value| !value.0.is_null()));
        self.normalize_format(name, schema);
        preserve_unknown_fields(schema);
        self.visit_children(name, schema);
        self.mark_atomic(name, schema);
    }

    fn visit_children(&self, name: &str, schema: &mut JSONSchemaProps) {
        let required = schema.required.clone().unwrap_or_default();
        for (child_name, child) in schema.properties.iter_mut().flatten() {
            self.visit(child_name, child);
            child.nullable = accepts_null(child, required.contains(child_name)).then_some(true);
        }
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
            self.visit(name, items);
            items.nullable = None;
        }
        if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
            self.visit("", values);
            values.nullable = None;
        }
    }

    fn normalize_format(&self, name: &str, schema: &mut JSONSchemaProps) {
        if schema.type_.as_deref() == Some("integer") {
            let int64 = self.velero && INT64_FIELDS.contains(&name);
            schema.format = int64.then(|| "int64".to_owned());
        }
    }

    fn mark_atomic(&self, name: &str, schema: &mut JSONSchemaProps) {
        if !self.velero {
            return;
        }
        let is = |type_: &str| schema.type_.as_deref() == Some(type_);
        if is("object") && ATOMIC_MAPS.contains(&name) {
            schema.x_kubernetes_map_type = Some("atomic".to_owned());
        } else if is("array") && ATOMIC_LISTS.contains(&name) {
            schema.x_kubernetes_list_type = Some("atomic".to_owned());
        }
        if has_properties(schema, &["key", "name", "optional"]) {
            set_default(schema, "name", "");
        }
    }
}

/// An optional field may be `null`: Go writes that for nil pointers, slices and maps. Enums are the exception: the API server
/// would look for `null` in the list of values.
fn accepts_null(schema: &JSONSchemaProps, required: bool) -> bool {
    !required && schema.enum_.is_none()
}

/// A map of any values, a struct with unknown fields and a value of any type have the same schema in Kubernetes.
fn preserve_unknown_fields(schema: &mut JSONSchemaProps) {
    if let Some(JSONSchemaPropsOrBool::Bool(any)) = schema.additional_properties {
        schema.additional_properties = None;
        schema.x_kubernetes_preserve_unknown_fields = any.then_some(true);
    }
    if schema.type_.is_none() {
        schema.type_ = Some("object".to_owned());
        schema.x_kubernetes_preserve_unknown_fields = Some(true);
    }
}

fn has_properties(schema: &JSONSchemaProps, names: &[&str]) -> bool {
    let properties = schema.properties.as_ref();
    properties.is_some_and(|properties| names.iter().all(|name| properties.contains_key(*name)))
}

fn set_default(schema: &mut JSONSchemaProps, name: &str, value: &str) {
    if let Some(field) = schema.properties.as_mut().and_then(|properties| properties.get_mut(name)) {
        field.default = Some(JSON(value.into()));
        // The API server does not replace a null by the default.
        field.nullable = None;
    }
    schema.required.iter_mut().for_each(|required| required.retain(|required| required != name));
}

fn add_object_fields(root: &mut JSONSchemaProps) {
    let properties = root.properties.get_or_insert_with(BTreeMap::new);
    for (name, type_) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
        properties
            .insert(name.to_owned(), JSONSchemaProps { type_: Some(type_.to_owned()), ..JSONSchemaProps::default() });
    }
}

fn require(root: &mut JSONSchemaProps, path: &str, fields: &[&str]) {
    let Some(schema) = at_path(root, path) else { return };
    schema.required = Some(fields.iter().map(|field| (*field).to_owned()).collect());
    for (name, property) in schema.properties.iter_mut().flatten() {
        if fields.contains(&name.as_str()) {
            property.nullable = None;
        }
    }
}

/// The schema at a path like `spec.hooks.resources[].pre[]`.
fn at_path<'a>(root: &'a mut JSONSchemaProps, path: &str) -> Option<&'a mut JSONSchemaProps> {
    path.split('.').try_fold(root, |schema, segment| {
        let (name, list) = segment.strip_suffix("[]").map_or((segment, false), |name| (name, true));
        let property = schema.properties.as_mut()?.get_mut(name)?;
        if list { list_items(property) } else { Some(property) }
    })
}

fn list_items(list: &mut JSONSchemaProps) -> Option<&mut JSONSchemaProps> {
    match list.items.as_mut()? {
        JSONSchemaPropsOrArray::Schema(items) => Some(items.as_mut()),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}
