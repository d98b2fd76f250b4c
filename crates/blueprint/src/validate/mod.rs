//! Validation of blueprints.

mod credentials;
mod phase;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::template::Template;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The blueprint cannot be run.
    Error,
    /// The blueprint can be run.
    Warning,
}

/// A problem of a blueprint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// Stable reason.
    pub reason: &'static str,
    /// Action, phase and argument, where applicable.
    pub location: String,
    /// The problem and the remedy.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(out, "{word}: {}: {} ({})", self.location, self.message, self.reason)
    }
}

/// Collects findings.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, location: &str, reason: &'static str, message: impl Into<String>) {
        self.0.push(Finding {
            severity: Severity::Error,
            reason,
            location: location.to_owned(),
            message: message.into(),
        });
    }

    fn warning(&mut self, location: &str, reason: &'static str, message: impl Into<String>) {
        self.0.push(Finding {
            severity: Severity::Warning,
            reason,
            location: location.to_owned(),
            message: message.into(),
        });
    }

    /// Parses all strings of a value as templates; returns the valid ones.
    fn templates(&mut self, location: &str, value: &Value) -> Vec<Template> {
        let mut found = Vec::new();
        match value {
            Value::String(source) => self.template(location, source, &mut found),
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    found.extend(self.templates(&format!("{location}[{at}]"), item));
                }
            }
            Value::Object(fields) => {
                for (key, item) in fields {
                    let path = format!("{location}.{key}");
                    self.template(&path, key, &mut found);
                    found.extend(self.templates(&path, item));
                }
            }
            _ => {}
        }
        found
    }

    fn template(&mut self, location: &str, source: &str, found: &mut Vec<Template>) {
        match Template::parse("line", source) {
            Ok(template) => found.push(template),
            Err(error) => self.error(location, error.reason(), error.to_string()),
        }
    }
}

/// Validates a blueprint; returns the findings in the order of its text.
pub fn validate(blueprint: &Value) -> Vec<Finding> {
    let mut findings = Findings::default();
    if blueprint["kind"] != "Blueprint" {
        findings.error("kind", "NotABlueprint", "not a Blueprint");
        return findings.0;
    }
    match &blueprint["actions"] {
        Value::Object(actions) if !actions.is_empty() => {
            actions.iter().for_each(|(name, action)| check_action(&mut findings, name, action));
            check_names(&mut findings, actions);
        }
        _ => findings.error("actions", "NoActions", "at least one action is required"),
    }
    findings.0
}

/// The errors of one action of a blueprint, and duplicate phase names. Errors of other actions are ignored.
pub fn validate_action(blueprint: &Value, name: &str) -> Vec<Finding> {
    let mut findings = Findings::default();
    let actions = blueprint["actions"].as_object();
    match actions.and_then(|actions| Some((actions, actions.get(name)?))) {
        Some((actions, action)) => {
            check_action(&mut findings, name, action);
            check_names(&mut findings, actions);
        }
        None => findings.error("actions", "NoAction", format!("action {name:?} not found in the blueprint")),
    }
    findings.0.into_iter().filter(|finding| finding.severity == Severity::Error).collect()
}

fn check_action(findings: &mut Findings, name: &str, action: &Value) {
    let location = format!("action {name}");
    match action["phases"].as_array() {
        Some(phases) if !phases.is_empty() => {
            for (at, phase) in phases.iter().enumerate() {
                phase::check(findings, &location, &format!("{at}"), phase);
            }
        }
        _ => findings.error(&location, "NoPhases", "at least one phase is required"),
    }
    if action.get("deferPhase").is_some_and(|phase| !phase.is_null()) {
        phase::check(findings, &location, "deferPhase", &action["deferPhase"]);
    }
    findings.templates(&format!("{location}, outputArtifacts"), &action["outputArtifacts"]);
}

/// Phase names are unique in an action: templates refer to a phase by name only. Kanister wants them to be unique in the blueprint
/// and does not check it when it runs one, so that is a warning.
fn check_names(findings: &mut Findings, actions: &Map<String, Value>) {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for (action, fields) in actions {
        for phase in fields["phases"].as_array().into_iter().flatten().chain(fields.get("deferPhase")) {
            let Some(name) = phase["name"].as_str().filter(|name| !name.is_empty()) else { continue };
            let location = format!("action {action}, phase {name}");
            match names.insert(name, action) {
                Some(first) if first == action => {
                    findings.error(&location, "DuplicatePhaseName", "duplicate phase name in this action");
                }
                Some(first) => {
                    let message = format!("also in action {first}; Kanister's validation refuses it");
                    findings.warning(&location, "RepeatedPhaseName", message);
                }
                None => {}
            }
        }
    }
}
