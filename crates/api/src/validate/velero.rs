//! Validation rules for Velero's kinds that a schema cannot express.

use serde_json::Value;

use super::{FieldErrors, describe, is_set, items, one_of};
use crate::labels;

/// The old resource filters and the scoped ones that replace them. A backup uses one group or the other.
const UNSCOPED_FILTERS: &[&str] = &["includedResources", "excludedResources", "includeClusterResources"];
const SCOPED_FILTERS: &[&str] = &[
    "includedClusterScopedResources",
    "excludedClusterScopedResources",
    "includedNamespaceScopedResources",
    "excludedNamespaceScopedResources",
];

/// Rules for the spec of a Backup and the template of a Schedule.
pub(super) fn check_backup_spec(path: &str, spec: &Value, errors: &mut FieldErrors) {
    check_selectors(path, spec, errors);
    check_filter_groups(path, spec, errors);
    check_includes(path, spec, "Namespaces", errors);
    check_includes(path, spec, "Resources", errors);
    check_config_map(&format!("{path}.resourcePolicy"), &spec["resourcePolicy"], errors);
    check_volume_groups(path, spec, errors);
    for (index, hook) in items(&spec["hooks"]["resources"]).iter().enumerate() {
        let hook_path = format!("{path}.hooks.resources[{index}]");
        check_includes(&hook_path, hook, "Namespaces", errors);
        check_includes(&hook_path, hook, "Resources", errors);
    }
}

pub(super) fn check_schedule(spec: &Value, errors: &mut FieldErrors) {
    errors.require_text("spec.schedule", &spec["schedule"], "a cron expression such as \"0 1 * * *\"");
    check_backup_spec("spec.template", &spec["template"], errors);
}

pub(super) fn check_restore(object: &Value, errors: &mut FieldErrors) {
    let spec = &object["spec"];
    check_source(object, errors);
    check_selectors("spec", spec, errors);
    check_includes("spec", spec, "Namespaces", errors);
    check_includes("spec", spec, "Resources", errors);
    check_config_map("spec.resourceModifier", &spec["resourceModifier"], errors);
    check_config_map("spec.resourcePolicy", &spec["resourcePolicy"], errors);
    errors.require_one_of("spec.existingResourcePolicy", &spec["existingResourcePolicy"], &["none", "update", ""]);
}

/// A restore names a backup or a schedule. The server sets the backup of a schedule, so a restore that has started may have
/// both.
fn check_source(object: &Value, errors: &mut FieldErrors) {
    let spec = &object["spec"];
    let started = object["status"]["phase"].as_str().is_some_and(|phase| !matches!(phase, "" | "New"));
    match (is_set(&spec["backupName"]), is_set(&spec["scheduleName"])) {
        (false, false) => {
            errors.add_missing("spec.backupName", "exactly one of backupName, scheduleName");
        }
        (true, true) if !started => {
            let found = format!("{} together with scheduleName", describe(&spec["backupName"]));
            errors.add_invalid("spec.backupName", found, "exactly one of backupName, scheduleName");
        }
        _ => {}
    }
}

pub(super) fn check_storage_location(spec: &Value, errors: &mut FieldErrors) {
    let store = &spec["objectStorage"];
    errors.require_text("spec.provider", &spec["provider"], "the name of a provider such as \"aws\"");
    errors.require_text("spec.objectStorage.bucket", &store["bucket"], "the name of a bucket");
    if store["bucket"].as_str().is_some_and(|bucket| bucket.contains('/')) {
        let expected = "a bucket name without \"/\" (use prefix for a path inside the bucket)";
        errors.add_invalid("spec.objectStorage.bucket", describe(&store["bucket"]), expected);
    }
    if is_set(&store["caCert"]) && is_set(&store["caCertRef"]) {
        errors.add_invalid(
            "spec.objectStorage.caCert",
            "a certificate together with caCertRef",
            "at most one of caCert, caCertRef",
        );
    }
}

fn check_selectors(path: &str, spec: &Value, errors: &mut FieldErrors) {
    if is_set(&spec["labelSelector"]) && is_set(&spec["orLabelSelectors"]) {
        let found = format!("{} together with labelSelector", describe(&spec["orLabelSelectors"]));
        errors.add_invalid(format!("{path}.orLabelSelectors"), found, "at most one of labelSelector, orLabelSelectors");
    }
    check_expressions(&format!("{path}.labelSelector"), &spec["labelSelector"], errors);
    for (index, selector) in items(&spec["orLabelSelectors"]).iter().enumerate() {
        check_expressions(&format!("{path}.orLabelSelectors[{index}]"), selector, errors);
    }
}

/// `In` and `NotIn` require values, `Exists` and `DoesNotExist` allow none.
fn check_expressions(path: &str, selector: &Value, errors: &mut FieldErrors) {
    for (index, expression) in items(&selector["matchExpressions"]).iter().enumerate() {
        let operator = expression["operator"].as_str().unwrap_or_default();
        let has_values = is_set(&expression["values"]);
        let expected = match (operator, has_values) {
            ("In" | "NotIn", false) => format!("one value or more with the operator {operator}"),
            ("Exists" | "DoesNotExist", true) => format!("no values with the operator {operator}"),
            _ => continue,
        };
        let found = if has_values { describe(&expression["values"]) } else { "no values".to_owned() };
        errors.add_invalid(format!("{path}.matchExpressions[{index}].values"), found, expected);
    }
}

fn check_filter_groups(path: &str, spec: &Value, errors: &mut FieldErrors) {
    let Some(old) = UNSCOPED_FILTERS.iter().find(|name| is_set(&spec[**name])) else { return };
    for name in SCOPED_FILTERS.iter().filter(|name| is_set(&spec[**name])) {
        let found = format!("{} together with {old}", describe(&spec[*name]));
        let expected = format!("either {} or {}", UNSCOPED_FILTERS.join(", "), SCOPED_FILTERS.join(", "));
        errors.add_invalid(format!("{path}.{name}"), found, expected);
    }
}

/// `what` is `Namespaces` or `Resources`: the lists `included<what>` and `excluded<what>`.
fn check_includes(path: &str, spec: &Value, what: &str, errors: &mut FieldErrors) {
    let included_name = format!("included{what}");
    let excluded_name = format!("excluded{what}");
    let included = items(&spec[&included_name]);
    if included.len() > 1 && included.iter().any(|name| name == "*") {
        errors.add_invalid(
            format!("{path}.{included_name}"),
            "\"*\" together with other names",
            "either \"*\" or names",
        );
    }
    for (index, name) in items(&spec[&excluded_name]).iter().enumerate() {
        let excluded_path = format!("{path}.{excluded_name}[{index}]");
        if name == "*" {
            errors.add_invalid(excluded_path, describe(name), "a name: \"*\" would exclude everything");
        } else if included.contains(name) {
            let found = format!("{}, which is also in {included_name}", describe(name));
            errors.add_invalid(excluded_path, found, format!("a name that is not in {included_name}"));
        }
    }
}

/// Claims of a group would be snapshotted one by one, at different times: a backup that asks for one moment is not taken. Velero
/// writes its default into each backup; claims with that label are a warning of the backup.
fn check_volume_groups(path: &str, spec: &Value, errors: &mut FieldErrors) {
    const FIELD: &str = "volumeGroupSnapshotLabelKey";
    let key = &spec[FIELD];
    if is_set(key) && key != labels::VOLUME_GROUP {
        let expected = "no value: VolumeGroupSnapshots are not supported, volumes are snapshotted one by one";
        errors.add_invalid(format!("{path}.{FIELD}"), describe(key), expected);
    }
}

fn check_config_map(path: &str, reference: &Value, errors: &mut FieldErrors) {
    if let Some(kind) = reference["kind"].as_str()
        && !kind.eq_ignore_ascii_case("configmap")
    {
        errors.add_invalid(format!("{path}.kind"), describe(&reference["kind"]), one_of(&["configmap"]));
    }
}
