//! What Kanister's schemas cannot say about its kinds.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Faults, describe, is_set, items};

/// Kinds an action can be done to without saying where their type is.
const TARGET_KINDS: &[&str] = &["statefulset", "deployment", "deploymentconfig", "pvc", "namespace", "unstructured"];

pub(super) fn check_action_set(spec: &Value, faults: &mut Faults) {
    for (index, action) in items(&spec["actions"]).iter().enumerate() {
        let path = format!("spec.actions[{index}]");
        require(faults, &path, action, "name", "the name of an action of the blueprint");
        require(faults, &path, action, "blueprint", "the name of a blueprint");
        check_target(&format!("{path}.object"), &action["object"], faults);
    }
}

fn check_target(path: &str, object: &Value, faults: &mut Faults) {
    let kind = object["kind"].as_str().unwrap_or_default();
    let known = TARGET_KINDS.contains(&kind.to_ascii_lowercase().as_str());
    let located = is_set(&object["apiVersion"]) && is_set(&object["resource"]);
    if !known && !located {
        let allowed = format!("one of {}, or apiVersion and resource of another type", TARGET_KINDS.join(", "));
        faults.add(format!("{path}.kind"), describe(&object["kind"]), allowed);
    }
}

pub(super) fn check_blueprint(object: &Value, faults: &mut Faults) {
    let mut seen = BTreeMap::new();
    for (name, action) in object["actions"].as_object().into_iter().flatten() {
        let path = format!("actions.{name}");
        for (index, phase) in items(&action["phases"]).iter().enumerate() {
            check_phase(format!("{path}.phases[{index}]"), phase, &mut seen, faults);
        }
        if is_set(&action["deferPhase"]) {
            check_phase(format!("{path}.deferPhase"), &action["deferPhase"], &mut seen, faults);
        }
    }
}

/// Templates name a phase without its action, so a phase's name is unique in the blueprint.
fn check_phase<'a>(path: String, phase: &'a Value, seen: &mut BTreeMap<&'a str, String>, faults: &mut Faults) {
    require(faults, &path, phase, "func", "the name of a function such as \"KubeExec\"");
    require(faults, &path, phase, "name", "a name that no other phase of the blueprint has");
    let name = phase["name"].as_str().unwrap_or_default();
    if let Some(other) = seen.get(name) {
        let found = format!("{}, as in {other}", describe(&phase["name"]));
        faults.add(format!("{path}.name"), found, "a name that no other phase of the blueprint has");
    } else if !name.is_empty() {
        seen.insert(name, path);
    }
}

pub(super) fn check_profile(object: &Value, faults: &mut Faults) {
    let (location, credential) = (&object["location"], &object["credential"]);
    faults.require_one_of("location.type", &location["type"], &["s3Compliant", "gcs", "azure", "kopia"]);
    faults.require_one_of("credential.type", &credential["type"], &["keyPair", "secret", "kopia"]);
    let needed = match credential["type"].as_str() {
        Some("keyPair") => "keyPair",
        Some("secret") => "secret",
        Some("kopia") => "kopiaServerSecret",
        _ => return,
    };
    if !is_set(&credential[needed]) {
        let allowed = format!("an object, as credential.type is {}", credential["type"]);
        faults.add(format!("credential.{needed}"), "nothing", allowed);
    }
}

/// A text that must be there: Kanister's schemas require nothing.
fn require(faults: &mut Faults, path: &str, object: &Value, name: &str, allowed: &str) {
    let value = &object[name];
    if value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty()) {
        let found = if value.is_null() { "nothing" } else { "an empty string" };
        faults.add(format!("{path}.{name}"), found, allowed);
    }
}
