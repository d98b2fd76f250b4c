//! `plimsoll blueprint`.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context;
use plimsoll_blueprint::validate::{Finding, Severity, validate};
use serde_json::{Value, json};

use crate::args::blueprint::{Blueprint, ValidateBlueprint};
use crate::exit::Outcome;
use crate::output;

/// Carries out one command.
pub fn run(verb: &Blueprint) -> anyhow::Result<Outcome> {
    match verb {
        Blueprint::Validate(options) => check(options),
    }
}

fn check(options: &ValidateBlueprint) -> anyhow::Result<Outcome> {
    let mut reports = Vec::new();
    for file in &options.files {
        for document in documents(file)? {
            let name = document["metadata"]["name"].as_str().unwrap_or("<unnamed>").to_owned();
            reports.push((file.display().to_string(), name, validate(&document)));
        }
    }
    match options.output {
        Some(format) => {
            let list: Vec<_> = reports
                .iter()
                .map(|(file, name, findings)| json!({ "file": file, "blueprint": name, "findings": findings }))
                .collect();
            output::object(&list, format)?;
        }
        None => reports.iter().for_each(|(file, name, findings)| print_findings(file, name, findings)),
    }
    let refused = reports.iter().flat_map(|(_, _, findings)| findings).any(is_error);
    Ok(if refused { Outcome::Refused } else { Outcome::Success })
}

fn is_error(finding: &Finding) -> bool {
    finding.severity == Severity::Error
}

fn print_findings(file: &str, name: &str, findings: &[Finding]) {
    for finding in findings {
        output::line(format!("{file}: {finding}"));
    }
    let errors = findings.iter().filter(|finding| is_error(finding)).count();
    let warnings = findings.len() - errors;
    let verdict = if errors == 0 { "is valid" } else { "is invalid" };
    output::line(format!("{file}: blueprint {name} {verdict}: {errors} errors, {warnings} warnings"));
}

/// The documents of a file; JSON is YAML too.
fn documents(file: &Path) -> anyhow::Result<Vec<Value>> {
    let text = read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{} is not YAML", file.display()))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn read(file: &Path) -> std::io::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file)
}
