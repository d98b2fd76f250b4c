//! What is wrong with a blueprint, before anybody runs it.

mod credentials;
mod phase;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::template::Template;

/// Whether a blueprint with this finding can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can, but somebody should know.
    Warning,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable word for what it is.
    pub reason: &'static str,
    /// Where it is: action, phase and argument, as far as there are any.
    pub place: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(out, "{word}: {}: {} ({})", self.place, self.message, self.reason)
    }
}

/// Collects findings.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, place: &str, reason: &'static str, message: impl Into<String>) {
        self.0.push(Finding { severity: Severity::Error, reason, place: place.to_owned(), message: message.into() });
    }

    fn warning(&mut self, place: &str, reason: &'static str, message: impl Into<String>) {
        self.0.push(Finding { severity: Severity::Warning, reason, place: place.to_owned(), message: message.into() });
    }

    /// Every string of a tree must be a template. Gives those that are.
    fn templates(&mut self, place: &str, value: &Value) -> Vec<Template> {
        let mut found = Vec::new();
        match value {
            Value::String(source) => self.template(place, source, &mut found),
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    found.extend(self.templates(&format!("{place}[{at}]"), item));
                }
            }
            Value::Object(fields) => {
                for (key, item) in fields {
                    let below = format!("{place}.{key}");
                    self.template(&below, key, &mut found);
                    found.extend(self.templates(&below, item));
                }
            }
            _ => {}
        }
        found
    }

    fn template(&mut self, place: &str, source: &str, found: &mut Vec<Template>) {
        match Template::parse("line", source) {
            Ok(template) => found.push(template),
            Err(error) => self.error(place, error.reason(), error.to_string()),
        }
    }
}

/// Everything that is wrong with a blueprint, in the order of its text; nothing if nothing is.
pub fn validate(blueprint: &Value) -> Vec<Finding> {
    let mut findings = Findings::default();
    if blueprint["kind"] != "Blueprint" {
        findings.error("kind", "NotABlueprint", "this is not a Blueprint");
        return findings.0;
    }
    match &blueprint["actions"] {
        Value::Object(actions) if !actions.is_empty() => {
            actions.iter().for_each(|(name, action)| check_action(&mut findings, name, action));
            check_names(&mut findings, actions);
        }
        _ => findings.error("actions", "NoActions", "a blueprint needs at least one action"),
    }
    findings.0
}

/// Everything for which one action of a blueprint cannot be run: what is wrong with it, and names that templates could take for
/// another phase's. What is wrong with other actions is nothing to whoever runs this one.
pub fn validate_action(blueprint: &Value, name: &str) -> Vec<Finding> {
    let mut findings = Findings::default();
    let actions = blueprint["actions"].as_object();
    match actions.and_then(|actions| Some((actions, actions.get(name)?))) {
        Some((actions, action)) => {
            check_action(&mut findings, name, action);
            check_names(&mut findings, actions);
        }
        None => findings.error("actions", "NoAction", format!("the blueprint has no action {name:?}")),
    }
    findings.0.into_iter().filter(|finding| finding.severity == Severity::Error).collect()
}

fn check_action(findings: &mut Findings, name: &str, action: &Value) {
    let place = format!("action {name}");
    match action["phases"].as_array() {
        Some(phases) if !phases.is_empty() => {
            for (at, phase) in phases.iter().enumerate() {
                phase::check(findings, &place, &format!("{at}"), phase);
            }
        }
        _ => findings.error(&place, "NoPhases", "an action needs at least one phase"),
    }
    if action.get("deferPhase").is_some_and(|phase| !phase.is_null()) {
        phase::check(findings, &place, "deferPhase", &action["deferPhase"]);
    }
    findings.templates(&format!("{place}, outputArtifacts"), &action["outputArtifacts"]);
}

/// Phase names are unique in the whole blueprint, as Kanister has it: templates find a phase by its name alone.
fn check_names(findings: &mut Findings, actions: &Map<String, Value>) {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for (action, fields) in actions {
        for phase in fields["phases"].as_array().into_iter().flatten().chain(fields.get("deferPhase")) {
            let Some(name) = phase["name"].as_str().filter(|name| !name.is_empty()) else { continue };
            if let Some(first) = names.get(name) {
                let message =
                    format!("the name is taken by a phase of action {first}; phase names are unique in a blueprint");
                findings.error(&format!("action {action}, phase {name}"), "DuplicatePhaseName", message);
                continue;
            }
            names.insert(name, action);
        }
    }
}
