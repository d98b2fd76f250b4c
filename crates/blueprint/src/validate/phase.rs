//! One phase: its function, its arguments, its templates.

use serde_json::{Map, Value};

use super::{Findings, credentials};
use crate::functions::table::{self, Function, Support};

/// Arguments that become the command of a pod, where every user of the cluster who may see pods can read them.
const COMMANDS: [&str; 4] = ["command", "backgroundCommand", "outputCommand", "initCommand"];

pub(super) fn check(findings: &mut Findings, action: &str, at: &str, phase: &Value) {
    let name = phase["name"].as_str().unwrap_or_default();
    let place = format!("{action}, phase {}", if name.is_empty() { at } else { name });
    if name.is_empty() {
        findings.error(&place, "NoPhaseName", "a phase needs a name");
    }
    let empty = Map::new();
    let arguments = phase["args"].as_object().unwrap_or(&empty);
    let function = function(findings, &place, phase);
    if let Some(function) = function {
        check_arguments(findings, &place, function, arguments);
    }
    for (key, value) in arguments {
        check_value(findings, &format!("{place}, argument {key}"), key, value, function);
    }
    findings.templates(&format!("{place}, objects"), &phase["objects"]);
}

/// The function of a phase, if this program can run it.
fn function(findings: &mut Findings, place: &str, phase: &Value) -> Option<&'static Function> {
    let Some(name) = phase["func"].as_str().filter(|name| !name.is_empty()) else {
        findings.error(place, "NoFunction", "a phase needs a func");
        return None;
    };
    let Some(function) = table::find(name) else {
        findings.error(place, "UnknownFunction", format!("there is no function {name}"));
        return None;
    };
    if let Support::Refused(cause) = function.support {
        findings.error(place, "FunctionNotSupported", format!("{name} is refused: {cause}"));
        return None;
    }
    Some(function)
}

fn check_arguments(findings: &mut Findings, place: &str, function: &Function, arguments: &Map<String, Value>) {
    for required in function.required.iter().filter(|name| !arguments.contains_key(**name)) {
        findings.error(place, "MissingArgument", format!("{} needs the argument {required}", function.name));
    }
    for group in function.one_of {
        let given = group.iter().filter(|name| arguments.contains_key(**name)).count();
        if given != 1 {
            let names = group.join(" or ");
            findings.error(place, "MissingArgument", format!("{} needs exactly one of {names}", function.name));
        }
    }
    for unsupported in arguments.keys().filter(|name| !function.accepts(name)) {
        let message = format!("{} has no argument {unsupported}", function.name);
        findings.error(place, "UnsupportedArgument", message);
    }
}

fn check_value(findings: &mut Findings, place: &str, key: &str, value: &Value, function: Option<&Function>) {
    if let Some(below) = null_below(value) {
        findings.error(&format!("{place}{below}"), "NullArgument", "the value is null; leave it out or give one");
    }
    if matches!(key, "podLabels" | "podAnnotations" | "labels") && !is_map_of_text(value) {
        findings.error(place, "InvalidArgument", format!("{key} must be a map of strings"));
    }
    if let Some(function) = function.filter(|function| key == "conditions" && !function.rendered) {
        check_conditions(findings, place, value, function);
        return;
    }
    let templates = findings.templates(place, value);
    if COMMANDS.contains(&key) {
        credentials::check(findings, place, &templates);
    }
}

/// The conditions of Wait and WaitV2 are filled in by themselves, over the objects they look at. Those of Wait are no templates
/// before their paths are.
fn check_conditions(findings: &mut Findings, place: &str, value: &Value, function: &Function) {
    let groups = ["anyOf", "allOf"].map(|group| (group, value[group].as_array().map_or(&[][..], Vec::as_slice)));
    if groups.iter().all(|(_, conditions)| conditions.is_empty()) {
        findings.error(place, "InvalidArgument", "conditions has neither anyOf nor allOf");
    }
    for (group, conditions) in groups {
        for (at, one) in conditions.iter().enumerate() {
            let place = format!("{place}.{group}[{at}]");
            match one["condition"].as_str() {
                None => findings.error(&place, "InvalidArgument", "there is no condition"),
                Some(text) if function.name == "Wait" && (text.contains("{ $") || text.contains("{$")) => {}
                Some(_) => drop(findings.templates(&format!("{place}.condition"), &one["condition"])),
            }
            findings.templates(&format!("{place}.objectReference"), &one["objectReference"]);
        }
    }
}

/// Where in a value the first null is.
fn null_below(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::Array(items) => {
            let found = items.iter().enumerate().find_map(|(at, item)| Some((at, null_below(item)?)))?;
            Some(format!("[{}]{}", found.0, found.1))
        }
        Value::Object(fields) => {
            let found = fields.iter().find_map(|(key, item)| Some((key, null_below(item)?)))?;
            Some(format!(".{}{}", found.0, found.1))
        }
        _ => None,
    }
}

fn is_map_of_text(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| fields.values().all(Value::is_string))
}
