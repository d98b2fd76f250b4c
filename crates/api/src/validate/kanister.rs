//! Validation rules for Kanister's kinds that a schema cannot express.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{FieldErrors, describe, is_set, items};

/// Kinds of objects for which an action needs no `apiVersion` and `resource`.
const TARGET_KINDS: &[&str] = &["statefulset", "deployment", "deploymentconfig", "pvc", "namespace", "unstructured"];

pub(super) fn check_action_set(spec: &Value, errors: &mut FieldErrors) {
    for (index, action) in items(&spec["actions"]).iter().enumerate() {
        let path = format!("spec.actions[{index}]");
        require_text(errors, &path, action, "name", "the name of an action of the blueprint");
        require_text(errors, &path, action, "blueprint", "the name of a blueprint");
        check_target(&format!("{path}.object"), &action["object"], errors);
    }
}

fn check_target(path: &str, object: &Value, errors: &mut FieldErrors) {
    let kind = object["kind"].as_str().unwrap_or_default();
    let known = TARGET_KINDS.contains(&kind.to_ascii_lowercase().as_str());
    let has_resource = is_set(&object["apiVersion"]) && is_set(&object["resource"]);
    if !known && !has_resource {
        let expected = format!("one of {}, or apiVersion and resource of another type", TARGET_KINDS.join(", "));
        errors.add_invalid(format!("{path}.kind"), describe(&object["kind"]), expected);
    }
}

pub(super) fn check_blueprint(object: &Value, errors: &mut FieldErrors) {
    for (name, action) in object["actions"].as_object().into_iter().flatten() {
        let mut seen = BTreeMap::new();
        let path = format!("actions.{name}");
        for (index, phase) in items(&action["phases"]).iter().enumerate() {
            check_phase(format!("{path}.phases[{index}]"), phase, &mut seen, errors);
        }
        if is_set(&action["deferPhase"]) {
            let mut phase = action["deferPhase"].clone();
            if !is_set(&phase["name"]) {
                phase["name"] = Value::from("deferPhase");
            }
            check_phase(format!("{path}.deferPhase"), &phase, &mut seen, errors);
        }
    }
}

/// Templates refer to a phase by its name, so phase names are unique in an action.
fn check_phase(path: String, phase: &Value, seen: &mut BTreeMap<String, String>, errors: &mut FieldErrors) {
    require_text(errors, &path, phase, "func", "the name of a function such as \"KubeExec\"");
    require_text(errors, &path, phase, "name", "a phase name that is unique in the action");
    let name = phase["name"].as_str().unwrap_or_default();
    if let Some(other) = seen.get(name) {
        let found = format!("{}, which is also the name of {other}", describe(&phase["name"]));
        errors.add_invalid(format!("{path}.name"), found, "a phase name that is unique in the action");
    } else if !name.is_empty() {
        seen.insert(name.to_owned(), path);
    }
}

pub(super) fn check_profile(object: &Value, errors: &mut FieldErrors) {
    let (location, credential) = (&object["location"], &object["credential"]);
    errors.require_one_of("location.type", &location["type"], &["s3Compliant", "gcs", "azure", "kopia"]);
    errors.require_one_of("credential.type", &credential["type"], &["keyPair", "secret", "kopia"]);
    let field = match credential["type"].as_str() {
        Some("keyPair") => "keyPair",
        Some("secret") => "secret",
        Some("kopia") => "kopiaServerSecret",
        _ => return,
    };
    if !is_set(&credential[field]) {
        let expected = format!("an object because credential.type is {}", credential["type"]);
        errors.add_missing(format!("credential.{field}"), expected);
    }
}

/// Rejects a missing or empty string: Kanister's schemas have no required fields.
fn require_text(errors: &mut FieldErrors, path: &str, object: &Value, name: &str, expected: &str) {
    let value = &object[name];
    let path = format!("{path}.{name}");
    if value.is_null() {
        errors.add_missing(path, expected);
    } else {
        errors.require_text(&path, value, expected);
    }
}
