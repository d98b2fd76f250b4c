//! What a set is going to do: its actions with those of their blueprints, or what is wrong with them.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::{Api, Client, ResourceExt};
use plimsoll_api::go::GoDuration;
use plimsoll_api::kanister::v1alpha1::{ActionSet, ActionSpec, Blueprint, BlueprintAction, BlueprintPhase};
use plimsoll_blueprint::functions::arguments;
use plimsoll_blueprint::functions::table::{self, Shown};
use plimsoll_blueprint::template::Template;
use plimsoll_engine::Error;
use serde_json::Value;

/// Annotation on an ActionSet or a Blueprint: how long a phase may take. One time for all (`1h`), or `phase=time,…`.
pub const TIMEOUT: &str = "plimsoll.dev/phase-timeout";
/// Annotation on a Blueprint: phases, separated by commas, that may be run again after the server was stopped.
pub const REPEATABLE: &str = "plimsoll.dev/repeatable-phases";

/// One action that is going to be run.
pub struct Planned {
    /// What the user asked for.
    pub spec: ActionSpec,
    /// How it is done.
    pub action: BlueprintAction,
    timeouts: Timeouts,
    repeatable: Vec<String>,
}

impl Planned {
    /// Its name.
    pub fn name(&self) -> &str {
        self.spec.name.as_deref().unwrap_or_default()
    }

    /// How long a phase may take.
    pub fn timeout(&self, phase: &str) -> Option<Duration> {
        self.timeouts.of(phase)
    }

    /// Whether its author says that a phase may be run again.
    pub fn is_repeatable(&self, phase: &str) -> bool {
        self.repeatable.iter().any(|name| name == phase)
    }
}

/// Reads the blueprints of a set. What is wrong with them is the inner error.
pub async fn load(
    set: &ActionSet,
    client: &Client,
    namespace: &str,
) -> Result<Result<Vec<Planned>, Vec<String>>, Error> {
    let api: Api<Blueprint> = Api::namespaced(client.clone(), namespace);
    let (mut planned, mut faults) = (Vec::new(), Vec::new());
    if set.spec.actions.is_empty() {
        faults.push("spec.actions: there is no action".to_owned());
    }
    for (index, spec) in set.spec.actions.iter().enumerate() {
        let name = spec.blueprint.clone().unwrap_or_default();
        let found = api.get_opt(&name).await.map_err(|e| Error::api(format!("read blueprint {name}"), e))?;
        let fault = |text: String| format!("spec.actions[{index}]: {text}");
        let Some(blueprint) = found else {
            faults.push(fault(format!("there is no blueprint {name:?} in namespace {namespace}")));
            continue;
        };
        match plan(set, spec, &blueprint) {
            Ok(one) => planned.push(one),
            Err(more) => faults.extend(more.into_iter().map(fault)),
        }
    }
    Ok(if faults.is_empty() { Ok(planned) } else { Err(faults) })
}

fn plan(set: &ActionSet, spec: &ActionSpec, blueprint: &Blueprint) -> Result<Planned, Vec<String>> {
    let (name, title) = (spec.name.clone().unwrap_or_default(), blueprint.name_any());
    let action = blueprint.spec.actions.get(&name).cloned();
    let action = action.ok_or_else(|| vec![format!("blueprint {title} has no action {name:?}")])?;
    let mut faults: Vec<_> =
        action_faults(&action).into_iter().map(|fault| format!("blueprint {title}, action {name}: {fault}")).collect();
    faults.extend(
        repeated_names(blueprint).into_iter().map(|name| format!("blueprint {title}: two phases are called {name:?}")),
    );
    let timeouts = [blueprint.annotations().get(TIMEOUT), set.annotations().get(TIMEOUT)];
    let mut merged = Timeouts::default();
    for text in timeouts.into_iter().flatten() {
        match Timeouts::parse(text) {
            Ok(more) => merged.add(more),
            Err(fault) => faults.push(format!("annotation {TIMEOUT}: {fault}")),
        }
    }
    let repeatable = blueprint
        .annotations()
        .get(REPEATABLE)
        .map(|text| text.split(',').map(|name| name.trim().to_owned()).collect());
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(Planned { spec: spec.clone(), action, timeouts: merged, repeatable: repeatable.unwrap_or_default() })
}

/// Everything that is wrong with an action of a blueprint, whatever it is used for.
pub fn action_faults(action: &BlueprintAction) -> Vec<String> {
    let mut faults = Vec::new();
    if action.phases.is_empty() {
        faults.push("it has no phases".to_owned());
    }
    for phase in action.phases.iter().chain(&action.defer_phase) {
        let name = phase.name.clone().unwrap_or_default();
        faults.extend(phase_faults(phase).into_iter().map(|fault| format!("phase {name}: {fault}")));
    }
    for (name, artifact) in &action.output_artifacts {
        let texts = artifact.key_value.values().chain(&artifact.kopia_snapshot);
        let wrong = texts.filter_map(|text| Template::parse(&format!("outputArtifacts.{name}"), text).err());
        faults.extend(wrong.map(|error| error.to_string()));
    }
    faults
}

fn phase_faults(phase: &BlueprintPhase) -> Vec<String> {
    let name = phase.func.clone().unwrap_or_default();
    if phase.name.as_deref().unwrap_or_default().is_empty() {
        return vec!["it has no name".to_owned()];
    }
    let Some(function) = table::find(&name) else { return vec![format!("there is no function {name:?}")] };
    let mut faults = arguments::faults(function, &phase.args);
    for (argument, value) in &phase.args {
        // What these wait for is a template of another kind.
        if function.rendered || function.shown != Shown::AtTheEnd {
            template_faults(argument, value, &mut faults);
        }
    }
    faults
}

fn template_faults(path: &str, value: &Value, faults: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            faults.extend(Template::parse(path, text).err().map(|e| format!("argument {path}: {e}")));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| template_faults(&format!("{path}[{at}]"), item, faults));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| template_faults(&format!("{path}.{key}"), value, faults));
        }
        _ => {}
    }
}

/// Templates name a phase without its action, so a name may stand only once in a blueprint.
pub fn repeated_names(blueprint: &Blueprint) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for action in blueprint.spec.actions.values() {
        for phase in action.phases.iter().chain(&action.defer_phase) {
            *seen.entry(phase.name.clone().unwrap_or_default()).or_default() += 1;
        }
    }
    seen.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name).collect()
}

/// How long phases may take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Timeouts {
    all: Option<Duration>,
    named: BTreeMap<String, Duration>,
}

impl Timeouts {
    fn parse(text: &str) -> Result<Self, String> {
        let time = |text: &str| {
            let parsed: Option<GoDuration> = serde_json::from_value(Value::String(text.trim().to_owned())).ok();
            let time = parsed.and_then(|time| time.as_std()).filter(|time| !time.is_zero());
            time.ok_or_else(|| format!("{text:?} is not a time such as 30m"))
        };
        let mut timeouts = Self::default();
        for part in text.split(',') {
            match part.split_once('=') {
                Some((phase, limit)) => drop(timeouts.named.insert(phase.trim().to_owned(), time(limit)?)),
                None => timeouts.all = Some(time(part)?),
            }
        }
        Ok(timeouts)
    }

    fn add(&mut self, more: Self) {
        self.all = more.all.or(self.all);
        self.named.extend(more.named);
    }

    fn of(&self, phase: &str) -> Option<Duration> {
        self.named.get(phase).copied().or(self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(value: Value) -> BlueprintPhase {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_is_wrong_with_a_phase_is_said_with_its_argument() {
        use serde_json::json;
        let cases = [
            (json!({ "name": "p", "func": "NoSuch" }), "there is no function \"NoSuch\""),
            (json!({ "name": "p", "func": "KubeTask", "args": { "image": "i" } }), "argument command: is missing"),
            (
                json!({ "name": "p", "func": "KubeTask", "args": { "image": "i", "command": null } }),
                "argument command: is null",
            ),
            (
                json!({ "name": "p", "func": "KubeTask", "args": { "image": "i", "command": ["x"], "imge": 1 } }),
                "argument imge: function KubeTask has no such argument",
            ),
            (json!({ "name": "p", "func": "CreateRDSSnapshot" }), "function CreateRDSSnapshot"),
            (json!({ "name": "p", "func": "CreateCSISnapshot" }), "function CreateCSISnapshot"),
        ];
        for (value, expected) in cases {
            let faults = phase_faults(&phase(value)).join("; ");
            assert!(faults.contains(expected), "{faults}");
        }
        assert_eq!(action_faults(&BlueprintAction::default()), ["it has no phases"]);
    }

    #[test]
    fn a_set_s_timeout_wins_over_the_blueprint_s() {
        let mut timeouts = Timeouts::parse("1h, dump=10m").unwrap();
        timeouts.add(Timeouts::parse("2h").unwrap());
        assert_eq!(timeouts.of("dump"), Some(Duration::from_mins(10)));
        assert_eq!(timeouts.of("other"), Some(Duration::from_hours(2)));
        assert!(Timeouts::parse("soon").is_err());
    }
}
