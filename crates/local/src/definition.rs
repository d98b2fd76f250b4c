//! CustomResourceDefinitions: defaults, validation, and the kinds that they define.

use crate::{
    kind::{Conversion, CustomResource, Kind},
    object::{is_terminating, now, text},
    status_error::StatusCause,
    table::Column,
};
use plimsoll_select::schema::Schema;
use serde_json::{Value, json};

/// Finalizer that keeps a definition until its objects are deleted.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
pub(crate) const RESOURCE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Sets the defaults of a definition.
pub(crate) fn set_defaults(definition: &mut Value) {
    let spec = crate::object::field(definition, "spec");
    let names = spec.entry("names").or_insert_with(|| json!({}));
    let kind = text(names, "/kind").to_owned();
    if let Some(names) = names.as_object_mut() {
        names.entry("singular").or_insert_with(|| json!(kind.to_lowercase()));
        names.entry("listKind").or_insert_with(|| json!(format!("{kind}List")));
    }
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
}

/// A definition is established as soon as it is accepted: it needs no further setup.
pub(crate) fn establish(definition: &mut Value) {
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now()});
    let stored = versions(definition).iter().find(|v| v["storage"] == true).map(|v| v["name"].clone());
    let mut stored_versions: Vec<Value> =
        definition.pointer("/status/storedVersions").and_then(Value::as_array).cloned().unwrap_or_default();
    stored_versions.extend(stored.filter(|version| !stored_versions.contains(version)));
    let conditions = match definition.pointer("/status/conditions") {
        Some(conditions) if conditions.as_array().is_some_and(|list| !list.is_empty()) => conditions.clone(),
        _ => json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]),
    };
    definition["status"] = json!({
        "conditions": conditions,
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": stored_versions,
    });
}

fn versions(definition: &Value) -> &[Value] {
    definition.pointer("/spec/versions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// All validation errors of a definition.
pub(crate) fn validate(definition: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    for field in ["/spec/group", "/spec/scope", "/spec/names/plural", "/spec/names/kind"] {
        if text(definition, field).is_empty() {
            causes.push(StatusCause::required(field.trim_start_matches('/').replace('/', "."), ""));
        }
    }
    let expected = format!("{}.{}", text(definition, "/spec/names/plural"), text(definition, "/spec/group"));
    if text(definition, "/metadata/name") != expected {
        let message = "must be spec.names.plural+\".\"+spec.group";
        causes.push(StatusCause::invalid("metadata.name", &definition["metadata"]["name"], message));
    }
    let scope = &definition["spec"]["scope"];
    if !matches!(scope.as_str(), None | Some("Namespaced" | "Cluster")) {
        causes.push(StatusCause::not_supported("spec.scope", scope, &[json!("Cluster"), json!("Namespaced")]));
    }
    validate_versions(versions(definition), &mut causes);
    causes
}

fn validate_versions(versions: &[Value], causes: &mut Vec<StatusCause>) {
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let message = "must have exactly one version marked as storage version";
        causes.push(StatusCause::invalid("spec.versions", &json!([]), message));
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        match version.pointer("/schema/openAPIV3Schema") {
            None | Some(Value::Null) => causes.push(StatusCause::required(path, "schemas are required")),
            Some(schema) => causes.extend(validate_schema(path, schema)),
        }
    }
}

fn validate_schema(path: String, schema: &Value) -> Option<StatusCause> {
    if schema["type"].as_str().is_none_or(str::is_empty) {
        return Some(StatusCause::required(format!("{path}.type"), "must not be empty at the root"));
    }
    let error = Schema::parse(schema).err()?;
    Some(StatusCause::invalid(path, schema, error.to_string()))
}

/// The kinds of a definition, one for each version that is served.
pub(crate) fn kinds(definition: &Value) -> Vec<Kind> {
    let served = versions(definition).iter().filter(|version| version["served"] == true);
    served.map(|version| kind(definition, version)).collect()
}

fn kind(definition: &Value, version: &Value) -> Kind {
    let spec = &definition["spec"];
    let names = |field: &str| text(spec, &format!("/names/{field}")).to_owned();
    let storage = versions(definition).iter().find(|version| version["storage"] == true);
    // With one version and an unchanged definition, objects are returned as they are stored.
    let unchanged = versions(definition).len() == 1 && definition["metadata"]["generation"] == 1;
    Kind {
        group: text(spec, "/group").to_owned(),
        version: text(version, "/name").to_owned(),
        kind: names("kind"),
        list_kind: names("listKind"),
        plural: names("plural"),
        singular: names("singular"),
        short_names: texts(&spec["names"]["shortNames"]),
        categories: texts(&spec["names"]["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        status: version.pointer("/subresources/status").is_some(),
        generation: true,
        selectable: selectable(version),
        columns: Column::of_definition(&version["additionalPrinterColumns"]),
        storage_version: storage.map(|version| text(version, "/name").to_owned()).unwrap_or_default(),
        conversion: if unchanged { Conversion::Identity } else { Conversion::Versioned },
        custom: Some(CustomResource {
            schema: version.pointer("/schema/openAPIV3Schema").and_then(|schema| Schema::parse(schema).ok()),
            terminating: is_terminating(definition),
        }),
        ..Kind::default()
    }
}

fn selectable(version: &Value) -> Vec<String> {
    let fields = version["selectableFields"].as_array().into_iter().flatten();
    fields.map(|field| text(field, "/jsonPath").trim_start_matches('.').to_owned()).collect()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Orders versions: stable before beta before alpha, then by number; anything else comes last.
pub(crate) fn priority(version: &str) -> (u8, u32, u32) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let Ok(major) = rest[..digits].parse() else { return (0, 0, 0) };
    let minor = |text: &str| text.parse().unwrap_or(0);
    match &rest[digits..] {
        "" => (3, major, 0),
        beta if beta.starts_with("beta") => (2, major, minor(&beta[4..])),
        alpha if alpha.starts_with("alpha") => (1, major, minor(&alpha[5..])),
        _ => (0, 0, 0),
    }
}
