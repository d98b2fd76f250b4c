//! What Velero's schemas cannot say about its kinds.

use serde_json::Value;

use super::{Faults, describe, is_set, items, one_of};

/// Lists that choose by type whatever the scope, and the ones that replaced them. A backup uses one family.
const TYPE_FILTERS: &[&str] = &["includedResources", "excludedResources", "includeClusterResources"];
const SCOPED_FILTERS: &[&str] = &[
    "includedClusterScopedResources",
    "excludedClusterScopedResources",
    "includedNamespaceScopedResources",
    "excludedNamespaceScopedResources",
];

/// The rules for a backup's spec, which a schedule's template is too.
pub(super) fn check_backup_spec(path: &str, spec: &Value, faults: &mut Faults) {
    check_selectors(path, spec, faults);
    check_filter_families(path, spec, faults);
    check_includes(path, spec, "Namespaces", faults);
    check_includes(path, spec, "Resources", faults);
    check_config_map(&format!("{path}.resourcePolicy"), &spec["resourcePolicy"], faults);
    for (index, hook) in items(&spec["hooks"]["resources"]).iter().enumerate() {
        let hook_path = format!("{path}.hooks.resources[{index}]");
        check_includes(&hook_path, hook, "Namespaces", faults);
        check_includes(&hook_path, hook, "Resources", faults);
    }
}

pub(super) fn check_schedule(spec: &Value, faults: &mut Faults) {
    faults.require_text("spec.schedule", &spec["schedule"], "a cron expression such as \"0 1 * * *\"");
    check_backup_spec("spec.template", &spec["template"], faults);
}

pub(super) fn check_restore(object: &Value, faults: &mut Faults) {
    let spec = &object["spec"];
    check_source(object, faults);
    check_selectors("spec", spec, faults);
    check_includes("spec", spec, "Namespaces", faults);
    check_includes("spec", spec, "Resources", faults);
    check_config_map("spec.resourceModifier", &spec["resourceModifier"], faults);
    check_config_map("spec.resourcePolicy", &spec["resourcePolicy"], faults);
    faults.require_one_of("spec.existingResourcePolicy", &spec["existingResourcePolicy"], &["none", "update", ""]);
}

/// A restore names a backup or a schedule. The server replaces a schedule by the backup it found and leaves its name there,
/// so a restore that has begun may have both.
fn check_source(object: &Value, faults: &mut Faults) {
    let spec = &object["spec"];
    let begun = object["status"]["phase"].as_str().is_some_and(|phase| !matches!(phase, "" | "New"));
    match (is_set(&spec["backupName"]), is_set(&spec["scheduleName"])) {
        (false, false) => {
            faults.add("spec.backupName", "neither a backup nor a schedule", "exactly one of backupName, scheduleName");
        }
        (true, true) if !begun => {
            let found = format!("{} beside scheduleName", describe(&spec["backupName"]));
            faults.add("spec.backupName", found, "exactly one of backupName, scheduleName");
        }
        _ => {}
    }
}

pub(super) fn check_storage_location(spec: &Value, faults: &mut Faults) {
    let store = &spec["objectStorage"];
    faults.require_text("spec.provider", &spec["provider"], "the name of a provider such as \"aws\"");
    faults.require_text("spec.objectStorage.bucket", &store["bucket"], "the name of a bucket");
    if store["bucket"].as_str().is_some_and(|bucket| bucket.contains('/')) {
        let allowed = "a bucket's name without \"/\" (a path inside the bucket belongs in prefix)";
        faults.add("spec.objectStorage.bucket", describe(&store["bucket"]), allowed);
    }
    if is_set(&store["caCert"]) && is_set(&store["caCertRef"]) {
        faults.add("spec.objectStorage.caCert", "a certificate beside caCertRef", "at most one of caCert, caCertRef");
    }
}

fn check_selectors(path: &str, spec: &Value, faults: &mut Faults) {
    if is_set(&spec["labelSelector"]) && is_set(&spec["orLabelSelectors"]) {
        let found = format!("{} beside labelSelector", describe(&spec["orLabelSelectors"]));
        faults.add(format!("{path}.orLabelSelectors"), found, "at most one of labelSelector, orLabelSelectors");
    }
    check_expressions(&format!("{path}.labelSelector"), &spec["labelSelector"], faults);
    for (index, selector) in items(&spec["orLabelSelectors"]).iter().enumerate() {
        check_expressions(&format!("{path}.orLabelSelectors[{index}]"), selector, faults);
    }
}

/// `In` and `NotIn` compare with values, `Exists` and `DoesNotExist` with nothing.
fn check_expressions(path: &str, selector: &Value, faults: &mut Faults) {
    for (index, expression) in items(&selector["matchExpressions"]).iter().enumerate() {
        let operator = expression["operator"].as_str().unwrap_or_default();
        let has_values = is_set(&expression["values"]);
        let allowed = match (operator, has_values) {
            ("In" | "NotIn", false) => format!("one value or more with the operator {operator}"),
            ("Exists" | "DoesNotExist", true) => format!("no values with the operator {operator}"),
            _ => continue,
        };
        let found = if has_values { describe(&expression["values"]) } else { "no values".to_owned() };
        faults.add(format!("{path}.matchExpressions[{index}].values"), found, allowed);
    }
}

fn check_filter_families(path: &str, spec: &Value, faults: &mut Faults) {
    let Some(old) = TYPE_FILTERS.iter().find(|name| is_set(&spec[**name])) else { return };
    for name in SCOPED_FILTERS.iter().filter(|name| is_set(&spec[**name])) {
        let found = format!("{} beside {old}", describe(&spec[*name]));
        let allowed = format!("either {} or {}", TYPE_FILTERS.join(", "), SCOPED_FILTERS.join(", "));
        faults.add(format!("{path}.{name}"), found, allowed);
    }
}

/// `what` is `Namespaces` or `Resources`: the lists `included<what>` and `excluded<what>`.
fn check_includes(path: &str, spec: &Value, what: &str, faults: &mut Faults) {
    let included_name = format!("included{what}");
    let excluded_name = format!("excluded{what}");
    let included = items(&spec[&included_name]);
    if included.len() > 1 && included.iter().any(|name| name == "*") {
        faults.add(format!("{path}.{included_name}"), "\"*\" beside other names", "\"*\" alone or names");
    }
    for (index, name) in items(&spec[&excluded_name]).iter().enumerate() {
        let excluded_path = format!("{path}.{excluded_name}[{index}]");
        if name == "*" {
            faults.add(excluded_path, describe(name), "a name: to exclude everything would leave nothing");
        } else if included.contains(name) {
            let found = format!("{}, which {included_name} has too", describe(name));
            faults.add(excluded_path, found, format!("a name that is not in {included_name}"));
        }
    }
}

fn check_config_map(path: &str, reference: &Value, faults: &mut Faults) {
    if let Some(kind) = reference["kind"].as_str()
        && !kind.eq_ignore_ascii_case("configmap")
    {
        faults.add(format!("{path}.kind"), describe(&reference["kind"]), one_of(&["configmap"]));
    }
}
