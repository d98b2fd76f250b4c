//! An ActionSet that cannot be resumed, because its plan is lost: whatever ran of it has failed.

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
use super::agent_transfer::Agents;

/// Ends it: what its phases left in the cluster goes, and its status says of none of them that it runs.
pub async fn end(job: &Job<ActionSetController>, why: &str) -> Result<Completion, Error> {
    for (action, phase) in started_phases(&job.journal_entries) {
        let identity = phase_identity(&[&job.id.uid, &action.to_string(), &phase]);
        job.record.check_effect()?;
        if let Err(error) = remove_pods(&job.context.leader.client, &identity).await {
            warn!("set {}, phase {phase}: {error}", job.id.name);
        }
        let leave = || job.record.check_effect().map_err(|error| error.to_string());
        if let Err(error) = Agents::new(Arc::clone(&job.context)).sweep(&identity, &leave).await {
            warn!("set {}, phase {phase}: what an agent was asked for cannot be removed: {error}", job.id.name);
        }
    }
    let status = failed(job.subject.status.clone().unwrap_or_default(), why);
    let ending = Some(Ending::Failed(why.to_owned()));
    Ok(Completion { status, state: OperationState::Failed, reasons: Vec::new(), ending })
}

/// The phases that an earlier attempt started.
fn started_phases(known: &[JournalEntry]) -> BTreeSet<(usize, String)> {
    let phases = known.iter().filter_map(|entry| match &entry.effect {
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
    // Of what is merged, only what is named goes.
    status["progress"]["runningPhase"] = json!("");
    status["progress"]["runningPhases"] = Value::Null;
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_runs_any_more_and_what_was_reached_stays() {
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
        let status = failed(status, "there is no blueprint");
        let action = &status["actions"][0];
        let states: Vec<_> = action["phases"].as_array().unwrap().iter().map(|phase| phase["state"].clone()).collect();
        assert_eq!(states, ["complete", "failed", "pending"]);
        assert_eq!(action["deferPhase"]["state"], "failed");
        assert_eq!(action["phases"][1]["progress"]["progressPercent"], "33.33");
        assert_eq!(
            (&status["state"], &status["error"]["message"]),
            (&json!("failed"), &json!("there is no blueprint"))
        );
        assert_eq!(
            (&status["progress"]["runningPhase"], &status["progress"]["runningPhases"]),
            (&json!(""), &Value::Null)
        );
        assert_eq!(status["progress"]["percentCompleted"], "44.44");
    }
}
