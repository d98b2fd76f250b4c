//! Every blueprint of a directory, such as Kanister's official ones: validated, rendered from backup to deletion, its conditions
//! evaluated. `PLIMSOLL_BLUEPRINTS` names the directory; without it there is nothing to test.

mod sample;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use plimsoll_blueprint::functions::arguments::Arguments;
use plimsoll_blueprint::functions::function_spec;
use plimsoll_blueprint::functions::wait::ConditionSyntax;
use plimsoll_blueprint::params::Params;
use plimsoll_blueprint::template::render_value;
use plimsoll_blueprint::validate::{Severity, validate};
use serde_json::{Map, Value, json};

use self::sample::Sample;

/// What is refused of the files of Kanister's repository of blueprints: the functions of Amazon RDS (ADR 0013).
const REFUSED: &[(&str, &str, &[&str])] = &[
    ("aws-rds-aurora-mysql__aws-rds-aurora-snap-blueprint.yaml", NOT_SUPPORTED, &["backup", "delete", "restore"]),
    ("aws-rds-postgres__aws-rds-postgres-dump-blueprint.yaml", NOT_SUPPORTED, &["backup", "restore"]),
    ("aws-rds-postgres__aws-rds-postgres-snap-blueprint.yaml", NOT_SUPPORTED, &["backup", "delete", "restore"]),
];
const NOT_SUPPORTED: &str = "FunctionNotSupported";

/// Conditions without a path in braces. Kanister finds none either, so that they hold for every object.
const ALWAYS_TRUE: &[&str] = &["$.status.containerStatuses[].ready"];

/// A blueprint and where it was read.
struct Blueprint {
    file: String,
    text: String,
    value: Value,
}

/// The blueprints of the directory that the variable names.
fn corpus() -> Vec<Blueprint> {
    let Some(directory) = std::env::var_os("PLIMSOLL_BLUEPRINTS").map(PathBuf::from) else { return Vec::new() };
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
            found.push(Blueprint { file, text, value });
        }
    }
    assert!(!found.is_empty(), "{} has no blueprints", directory.display());
    found.sort_by(|one, other| one.file.cmp(&other.file));
    found
}

/// The reasons for which an action of a file is refused, without repetitions.
fn refusals(blueprint: &Blueprint) -> BTreeSet<(String, &'static str, String)> {
    let errors = validate(&blueprint.value).into_iter().filter(|finding| finding.severity == Severity::Error);
    let action =
        |location: &str| location.trim_start_matches("action ").split(',').next().unwrap_or_default().to_owned();
    errors.map(|finding| (blueprint.file.clone(), finding.reason, action(&finding.location))).collect()
}

#[test]
fn every_blueprint_is_accepted_or_on_the_list_of_refusals() {
    let corpus = corpus();
    let found: BTreeSet<_> = corpus.iter().flat_map(refusals).collect();
    let expected: BTreeSet<_> = REFUSED
        .iter()
        .filter(|(file, ..)| corpus.iter().any(|blueprint| blueprint.file == *file))
        .flat_map(|(file, reason, actions)| {
            actions.iter().map(|action| ((*file).to_owned(), *reason, (*action).to_owned()))
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn every_accepted_blueprint_renders_from_its_backup_to_its_deletion() {
    let mut failed = Vec::new();
    for blueprint in corpus() {
        let refused: BTreeSet<_> = refusals(&blueprint).into_iter().map(|(.., action)| action).collect();
        let actions = blueprint.value["actions"].as_object().unwrap();
        let mut artifacts = Map::new();
        // The actions that make artifacts come before those that need them.
        let (mut first, rest): (Vec<_>, Vec<_>) =
            actions.iter().partition(|(_, action)| action["inputArtifactNames"].is_null());
        first.extend(rest);
        for (name, action) in first {
            if refused.contains(name) {
                artifacts.extend(sample::artifacts(&blueprint.text));
                continue;
            }
            match run_action(&blueprint, action, &artifacts) {
                Ok(made) => artifacts.extend(made),
                Err(why) => failed.push(format!("{}, action {name}: {why}", blueprint.file)),
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Renders the phases of an action as a server does, and then its artifacts.
fn run_action(
    blueprint: &Blueprint,
    action: &Value,
    artifacts: &Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let sample = Sample::of(&blueprint.text, action);
    let mut params = sample.params(artifacts);
    for phase in action["phases"].as_array().into_iter().flatten() {
        run_phase(&sample, phase, &mut params, false)?;
    }
    if let Some(phase) = action.get("deferPhase") {
        run_phase(&sample, phase, &mut params, true)?;
    }
    let rendered = render_value(&action["outputArtifacts"], params.tree()).map_err(|error| error.to_string())?;
    Ok(rendered.as_object().cloned().unwrap_or_default())
}

fn run_phase(sample: &Sample, phase: &Value, params: &mut Params, defer: bool) -> Result<(), String> {
    let name = phase["name"].as_str().unwrap_or("deferPhase");
    let fault = |error: &dyn std::fmt::Display| format!("phase {name}: {error}");
    let objects = render_value(&phase["objects"], params.tree()).map_err(|error| fault(&error))?;
    params.start_phase(name, &sample.objects(&objects), defer);
    let function = function_spec::find(phase["func"].as_str().unwrap_or_default()).ok_or_else(|| fault(&"function"))?;
    let arguments = if function.rendered {
        render_value(&phase["args"], params.tree()).map_err(|error| fault(&error))?
    } else {
        let syntax = if function.name == "Wait" { ConditionSyntax::JsonPaths } else { ConditionSyntax::Template };
        check_conditions(syntax, &phase["args"]["conditions"], params).map_err(|error| fault(&error))?;
        phase["args"].clone()
    };
    let arguments = Arguments::new(arguments.as_object().cloned().unwrap_or_default());
    if let Some(missing) = function.required.iter().find(|name| !arguments.has(name)) {
        return Err(fault(&format!("argument {missing} is empty")));
    }
    let outputs = function.outputs.iter().map(|key| ((*key).to_owned(), sample::output(key)));
    let outputs: BTreeMap<_, _> = outputs.chain(sample::outputs_of_commands(&phase["args"])).collect();
    params.complete_phase(name, &outputs.into_iter().collect(), defer);
    Ok(())
}

/// Every condition holds for an object in the state that it asks for, and not for one without a status.
fn check_conditions(syntax: ConditionSyntax, conditions: &Value, params: &Params) -> Result<(), String> {
    for one in ["anyOf", "allOf"].iter().flat_map(|group| conditions[group].as_array().into_iter().flatten()) {
        render_value(&one["objectReference"], params.tree()).map_err(|error| error.to_string())?;
        let text = one["condition"].as_str().unwrap();
        let holds = |object: &Value| syntax.evaluate(text, object).map(|text| text.trim() == "true");
        if !holds(&sample::ready()).map_err(|error| error.to_string())? {
            return Err(format!("{text} does not hold"));
        }
        let without_status = holds(&json!({ "metadata": {} })).unwrap_or(false);
        if without_status && !ALWAYS_TRUE.iter().any(|known| text.contains(known)) {
            return Err(format!("{text} holds for an object without a status"));
        }
    }
    Ok(())
}
