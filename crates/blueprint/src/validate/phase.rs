//! Validation of a phase: function, arguments, templates.

use serde_json::{Map, Value};

use super::{Findings, credentials};
use crate::functions::function_spec::{self, FunctionSpec, Support};
use crate::functions::wait::ConditionSyntax;

/// Arguments that become the command of a pod, which all users who can read pods can see.
const COMMAND_ARGUMENTS: [&str; 4] = ["command", "backgroundCommand", "outputCommand", "initCommand"];

pub(super) fn check(findings: &mut Findings, action: &str, at: &str, phase: &Value) {
    let name = phase["name"].as_str().unwrap_or_default();
    let location = format!("{action}, phase {}", if name.is_empty() { at } else { name });
    // A deferPhase is the only one of its action and gets a name.
    if name.is_empty() && at != "deferPhase" {
        findings.error(&location, "NoPhaseName", "name is required");
    }
    let empty = Map::new();
    let arguments = phase["args"].as_object().unwrap_or(&empty);
    let function = function(findings, &location, phase);
    if let Some(function) = function {
        check_arguments(findings, &location, function, arguments);
    }
    for (key, value) in arguments {
        check_value(findings, &format!("{location}, argument {key}"), key, value, function);
    }
    findings.templates(&format!("{location}, objects"), &phase["objects"]);
}

/// The function of a phase, if it is supported.
fn function(findings: &mut Findings, location: &str, phase: &Value) -> Option<&'static FunctionSpec> {
    let Some(name) = phase["func"].as_str().filter(|name| !name.is_empty()) else {
        findings.error(location, "NoFunction", "func is required");
        return None;
    };
    let Some(function) = function_spec::find(name) else {
        findings.error(location, "UnknownFunction", format!("unknown function {name}"));
        return None;
    };
    if let Support::Unsupported(cause) = function.support {
        findings.error(location, "FunctionNotSupported", format!("{name} is not supported: {cause}"));
        return None;
    }
    Some(function)
}

fn check_arguments(findings: &mut Findings, location: &str, function: &FunctionSpec, arguments: &Map<String, Value>) {
    for required in function.required.iter().filter(|name| !arguments.contains_key(**name)) {
        findings.error(location, "MissingArgument", format!("{} requires the argument {required}", function.name));
    }
    for group in function.one_of {
        let given = group.iter().filter(|name| arguments.contains_key(**name)).count();
        if given != 1 {
            let names = group.join(" or ");
            findings.error(location, "MissingArgument", format!("{} requires exactly one of {names}", function.name));
        }
    }
    for unsupported in arguments.keys().filter(|name| !function.accepts(name)) {
        let message = format!("{} has no argument {unsupported}", function.name);
        findings.error(location, "UnsupportedArgument", message);
    }
}

fn check_value(findings: &mut Findings, location: &str, key: &str, value: &Value, function: Option<&FunctionSpec>) {
    if let Some(path) = path_of_null(value) {
        findings.error(&format!("{location}{path}"), "NullArgument", "value is null; remove it or set a value");
    }
    if matches!(key, "podLabels" | "podAnnotations" | "labels") && !is_map_of_text(value) {
        findings.error(location, "InvalidArgument", format!("{key} must be a map of strings"));
    }
    if let Some(function) = function.filter(|function| key == "conditions" && !function.rendered) {
        check_conditions(findings, location, value, function);
        return;
    }
    let templates = findings.templates(location, value);
    if COMMAND_ARGUMENTS.contains(&key) {
        credentials::check(findings, location, &templates);
    }
}

/// The conditions of Wait and WaitV2 are rendered over the objects they refer to.
fn check_conditions(findings: &mut Findings, location: &str, value: &Value, function: &FunctionSpec) {
    let groups = ["anyOf", "allOf"].map(|group| (group, value[group].as_array().map_or(&[][..], Vec::as_slice)));
    if groups.iter().all(|(_, conditions)| conditions.is_empty()) {
        findings.error(location, "InvalidArgument", "neither anyOf nor allOf is set");
    }
    for (group, conditions) in groups {
        for (at, one) in conditions.iter().enumerate() {
            let location = format!("{location}.{group}[{at}]");
            match one["condition"].as_str() {
                None => findings.error(&location, "InvalidArgument", "missing condition"),
                Some(text) => check_condition(findings, &format!("{location}.condition"), text, function),
            }
            findings.templates(&format!("{location}.objectReference"), &one["objectReference"]);
        }
    }
}

fn check_condition(findings: &mut Findings, location: &str, text: &str, function: &FunctionSpec) {
    if function.name != "Wait" {
        findings.templates(location, &Value::from(text));
    } else if let Err(cause) = ConditionSyntax::JsonPaths.check(text) {
        findings.error(location, "ConditionInvalid", cause);
    }
}

/// The path of the first null in a value.
fn path_of_null(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::Array(items) => {
            let found = items.iter().enumerate().find_map(|(at, item)| Some((at, path_of_null(item)?)))?;
            Some(format!("[{}]{}", found.0, found.1))
        }
        Value::Object(fields) => {
            let found = fields.iter().find_map(|(key, item)| Some((key, path_of_null(item)?)))?;
            Some(format!(".{}{}", found.0, found.1))
        }
        _ => None,
    }
}

fn is_map_of_text(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| fields.values().all(Value::is_string))
}
