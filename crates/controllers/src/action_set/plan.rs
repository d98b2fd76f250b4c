//! The plan of an ActionSet: its actions with those of their blueprints, or what is wrong with them.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::{Api, Client, ResourceExt};
use plimsoll_api::go::GoDuration;
use plimsoll_api::kanister::v1alpha1::{ActionSet, ActionSpec, Blueprint, BlueprintAction};
use plimsoll_blueprint::functions::function_spec;
use plimsoll_blueprint::validate::validate_action;
use plimsoll_engine::Error;
use plimsoll_engine::ports::{Effect, JournalEntry};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::phase_journal::PhaseJournal;

/// Annotation on an ActionSet or a Blueprint: the timeout of its phases. One for all (`1h`), or `phase=time,…`.
pub const TIMEOUT: &str = "plimsoll.dev/phase-timeout";
/// Annotation on a Blueprint: phases, separated by commas, that may be run again after the server was stopped.
pub const REPEATABLE: &str = "plimsoll.dev/repeatable-phases";

/// Key of the note with the plan.
const PLANNED: &str = "planned";
/// A longer plan is not recorded, but computed again.
const MAX_PLAN_BYTES: usize = 256 << 10;

/// One action to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedAction {
    /// The action of the ActionSet.
    pub spec: ActionSpec,
    /// The action of the blueprint.
    pub action: BlueprintAction,
    timeouts: Timeouts,
    repeatable: Vec<String>,
}

impl PlannedAction {
    /// Its name.
    pub fn name(&self) -> &str {
        self.spec.name.as_deref().unwrap_or_default()
    }

    /// Timeout of a phase.
    pub fn timeout(&self, phase: &str) -> Option<Duration> {
        self.timeouts.of(phase)
    }

    /// Whether the blueprint allows that a phase is run again.
    pub fn is_repeatable(&self, phase: &str) -> bool {
        self.repeatable.iter().any(|name| name == phase)
    }
}

/// The plan that an earlier process recorded: a blueprint that is changed or deleted later does not change a running ActionSet.
pub fn from_journal(entries: &[JournalEntry]) -> Option<Vec<PlannedAction>> {
    let text = PhaseJournal::read(entries, 0, "").notes.remove(PLANNED)?;
    serde_json::from_str(&text).ok()
}

/// The journal entry that keeps a plan for a new leader, if it can be kept.
pub fn journal_note(planned: &[PlannedAction]) -> Option<Effect> {
    let value = serde_json::to_string(planned).ok().filter(|text| text.len() <= MAX_PLAN_BYTES)?;
    Some(Effect::Note { action: 0, phase: String::new(), key: PLANNED.into(), value })
}

/// Reads the blueprints of an ActionSet. The inner error has their faults.
pub async fn load(
    set: &ActionSet,
    client: &Client,
    namespace: &str,
) -> Result<Result<Vec<PlannedAction>, Vec<String>>, Error> {
    let api: Api<Blueprint> = Api::namespaced(client.clone(), namespace);
    let (mut planned, mut faults) = (Vec::new(), Vec::new());
    if set.spec.actions.is_empty() {
        faults.push("spec.actions is empty".to_owned());
    }
    for (index, spec) in set.spec.actions.iter().enumerate() {
        let name = spec.blueprint.clone().unwrap_or_default();
        let found = api.get_opt(&name).await.map_err(|e| Error::api(format!("read blueprint {name}"), e))?;
        let fault = |text: String| format!("spec.actions[{index}]: {text}");
        let Some(blueprint) = found else {
            faults.push(fault(format!("blueprint {name:?} not found in namespace {namespace}")));
            continue;
        };
        match plan(set, spec, &blueprint) {
            Ok(one) => planned.push(one),
            Err(more) => faults.extend(more.into_iter().map(fault)),
        }
    }
    Ok(if faults.is_empty() { Ok(planned) } else { Err(faults) })
}

fn plan(set: &ActionSet, spec: &ActionSpec, blueprint: &Blueprint) -> Result<PlannedAction, Vec<String>> {
    let name = spec.name.clone().unwrap_or_default();
    let mut faults = faults_of(blueprint, &name);
    faults.extend(version_fault(spec));
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
    let action = blueprint.spec.actions.get(&name).cloned().filter(|_| faults.is_empty());
    let Some(mut action) = action else { return Err(faults) };
    name_defer_phase(&mut action);
    Ok(PlannedAction { spec: spec.clone(), action, timeouts: merged, repeatable: repeatable.unwrap_or_default() })
}

/// A `deferPhase` needs no name in Kanister; the journal and the status need one.
fn name_defer_phase(action: &mut BlueprintAction) {
    if let Some(phase) =
        action.defer_phase.as_mut().filter(|phase| phase.name.as_deref().unwrap_or_default().is_empty())
    {
        phase.name = Some("deferPhase".into());
    }
}

/// The faults that prevent an action of a blueprint from running.
pub fn faults_of(blueprint: &Blueprint, action: &str) -> Vec<String> {
    let raw = serde_json::to_value(blueprint).unwrap_or_default();
    let title = blueprint.name_any();
    validate_action(&raw, action)
        .into_iter()
        .map(|finding| format!("blueprint {title}: {}: {}", finding.location, finding.message))
        .collect()
}

/// Every function has one version, which is also Kanister's fallback; a text that is not a version is rejected, as in Kanister.
fn version_fault(spec: &ActionSpec) -> Option<String> {
    let wanted = spec.preferred_version.as_deref().filter(|text| !text.is_empty())?;
    let known = function_spec::is_version(wanted);
    (!known).then(|| format!("preferredVersion: {wanted:?} is not a version such as v0.0.0"))
}

/// Timeouts of phases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

    fn planned(phase: &Value, version: &str) -> Result<PlannedAction, Vec<String>> {
        use serde_json::json;
        let blueprint = json!({ "apiVersion": "cr.kanister.io/v1alpha1", "kind": "Blueprint", "metadata": { "name": "bp" },
            "actions": { "act": { "phases": [phase] }, "other": { "phases": [{ "func": "CreateRDSSnapshot", "name": "rds" }] } } });
        let spec =
            ActionSpec { name: Some("act".into()), preferred_version: Some(version.into()), ..ActionSpec::default() };
        plan(&ActionSet::default(), &spec, &serde_json::from_value(blueprint).unwrap())
    }

    #[test]
    fn faults_of_a_phase_name_its_argument_and_other_actions_are_ignored() {
        use serde_json::json;
        let task = |args: Value| json!({ "name": "p", "func": "KubeTask", "args": args });
        let good = task(json!({ "image": "i", "command": ["x"] }));
        assert!(planned(&good, "").is_ok());
        assert!(planned(&good, "v1.0.0-alpha").is_ok(), "Kanister falls back to the version there is");
        let cases = [
            (task(json!({ "image": "i" })), "v0.0.0", "phase p: KubeTask requires the argument command"),
            (task(json!({ "image": "i", "command": null })), "v0.0.0", "phase p, argument command: value is null"),
            (good, "newest", "preferredVersion: \"newest\" is not a version"),
        ];
        for (phase, version, expected) in cases {
            let faults = planned(&phase, version).err().unwrap_or_default().join("; ");
            assert!(faults.contains(expected), "{faults}");
        }
    }

    #[test]
    fn a_plan_is_restored_from_the_journal() {
        use plimsoll_engine::ports::IntentId;
        use serde_json::json;
        let phase = json!({ "name": "p", "func": "KubeTask", "args": { "image": "i", "command": ["{{ .Time }}"] } });
        let mut one = planned(&phase, "v0.0.0").unwrap();
        one.timeouts = Timeouts::parse("1h,p=1500ms").unwrap();
        one.repeatable = vec!["p".into()];
        let plan = vec![one.clone(), one];
        let known = [JournalEntry { id: IntentId(0), effect: journal_note(&plan).unwrap(), result: None }];
        assert_eq!(from_journal(&known), Some(plan));
        assert_eq!(from_journal(&[]), None);
    }

    #[test]
    fn the_timeout_of_an_action_set_overrides_that_of_the_blueprint() {
        let mut timeouts = Timeouts::parse("1h, dump=10m").unwrap();
        timeouts.add(Timeouts::parse("2h").unwrap());
        assert_eq!(timeouts.of("dump"), Some(Duration::from_mins(10)));
        assert_eq!(timeouts.of("other"), Some(Duration::from_hours(2)));
        assert!(Timeouts::parse("soon").is_err());
    }
}
