//! `plimsoll blueprint`.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context;
use kube::Api;
use plimsoll_api::kanister::v1alpha1 as kanister;
use plimsoll_blueprint::validate::{Finding, Severity, validate};
use serde_json::{Value, json};

use crate::args::Global;
use crate::args::blueprint::{Blueprint, ValidateBlueprint};
use crate::exit::Outcome;
use crate::{connect, output};

/// Carries out one command.
pub async fn run(global: &Global, verb: &Blueprint) -> anyhow::Result<Outcome> {
    match verb {
        Blueprint::Validate(options) => check(global, options).await,
    }
}

async fn check(global: &Global, options: &ValidateBlueprint) -> anyhow::Result<Outcome> {
    let mut reports = Vec::new();
    for file in &options.files {
        for document in documents(file)? {
            let name = document["metadata"]["name"].as_str().unwrap_or("<unnamed>").to_owned();
            reports.push((file.display().to_string(), name, validate(&document)));
        }
    }
    if !options.name.is_empty() {
        let client = connect::client(global).await?;
        let api: Api<kanister::Blueprint> = Api::namespaced(client, &global.namespace);
        for name in &options.name {
            let blueprint = serde_json::to_value(api.get(name).await?)?;
            reports.push((format!("blueprint/{name}"), name.clone(), validate(&blueprint)));
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
