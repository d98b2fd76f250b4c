//! An ActionSet that cannot be resumed, because its plan is lost: its running phases have failed.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_api::kanister::v1alpha1::{ActionSetStatus, ActionState, ErrorMessage};
use plimsoll_api::plimsoll::v1alpha1::OperationState;
use plimsoll_blueprint::functions::{phase_identity, remove_pods};
use plimsoll_engine::Error;
use plimsoll_engine::ports::{Effect, JournalEntry, LeadershipGuard};
use plimsoll_operations::{Completion, Job};
use plimsoll_progress::Ending;
use serde_json::{Value, json};
use tracing::warn;

use super::ActionSetController;
use super::agent_transfer::NodeAgents;

/// Deletes what its phases left in the cluster, and ends it with a status in which no phase runs.
pub async fn end(job: &Job<ActionSetController>, why: &str) -> Result<Completion, Error> {
    for (action, phase) in started_phases(&job.journal_entries) {
        let identity = phase_identity(&[&job.id.uid, &action.to_string(), &phase]);
        job.record.check_effect()?;
        if let Err(error) = remove_pods(&job.context.leader.client, &identity).await {
            warn!("set {}, phase {phase}: {error}", job.id.name);
        }
        let authorize = || job.record.check_effect().map_err(|error| error.to_string());
        if let Err(error) = NodeAgents::new(Arc::clone(&job.context)).delete_objects(&identity, &authorize).await {
            warn!("set {}, phase {phase}: failed to remove the transfer of an agent: {error}", job.id.name);
        }
    }
    let status = failed(job.subject.status.clone().unwrap_or_default(), why);
    let ending = Some(Ending::Failed(why.to_owned()));
    Ok(Completion { status, state: OperationState::Failed, reasons: Vec::new(), ending })
}

/// The phases that an earlier attempt started.
fn started_phases(entries: &[JournalEntry]) -> BTreeSet<(usize, String)> {
    let phases = entries.iter().filter_map(|entry| match &entry.effect {
        Effect::Phase { action, phase } => Some((*action, phase.clone())),
        _ => None,
    });
    phases.collect()
}

fn failed(mut status: ActionSetStatus, why: &str) -> Value {
    status.state = Some(ActionState::Failed);
    status.error = Some(ErrorMessage { message: Some(why.to_owned()), ..ErrorMessage::default() });
    for action in &mut status.actions {
        for phase in action.phases.iter_mut().chain(&mut action.defer_phase) {
            if phase.state == Some(ActionState::Running) {
                phase.state = Some(ActionState::Failed);
            }
        }
    }
    let mut status = serde_json::to_value(status).unwrap_or_default();
    // A merge patch leaves alone what it does not name.
    status["progress"]["runningPhase"] = json!("");
    status["progress"]["runningPhases"] = Value::Null;
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_phase_runs_and_the_progress_stays() {
        let status: ActionSetStatus = serde_json::from_value(json!({
            "state": "running",
            "actions": [{ "name": "act", "phases": [
                { "name": "one", "state": "complete", "progress": { "progressPercent": "100.00" } },
                { "name": "two", "state": "running", "progress": { "progressPercent": "33.33" } },
                { "name": "three", "state": "pending" }],
                "deferPhase": { "name": "last", "state": "running" } }],
            "progress": { "runningPhase": "two", "runningPhases": ["act/two"], "percentCompleted": "44.44" },
        }))
        .unwrap();
        let status = failed(status, "blueprint not found");
        let action = &status["actions"][0];
        let states: Vec<_> = action["phases"].as_array().unwrap().iter().map(|phase| phase["state"].clone()).collect();
        assert_eq!(states, ["complete", "failed", "pending"]);
        assert_eq!(action["deferPhase"]["state"], "failed");
        assert_eq!(action["phases"][1]["progress"]["progressPercent"], "33.33");
        assert_eq!((&status["state"], &status["error"]["message"]), (&json!("failed"), &json!("blueprint not found")));
        assert_eq!(
            (&status["progress"]["runningPhase"], &status["progress"]["runningPhases"]),
            (&json!(""), &Value::Null)
        );
        assert_eq!(status["progress"]["percentCompleted"], "44.44");
    }
}
