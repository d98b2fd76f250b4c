//! The template parameters of an action, and the durable note of its target.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_blueprint as blueprint;
use plimsoll_blueprint::params::{self, Params, SavedTarget};
use plimsoll_engine::Error;
use plimsoll_engine::ports::{Effect, Journal};
use plimsoll_operations::Job;
use plimsoll_progress::Task;
use plimsoll_store::RetryPolicy;

use super::ActionSetController;
use super::phase_journal::PhaseJournal;
use super::plan::PlannedAction;

/// Key of the note with the target of an action.
const TARGET_NOTE: &str = "begun";
/// How long reads of the parameters are retried.
const FETCH_TIMEOUT: Duration = Duration::from_mins(4);

/// Reads the template parameters of an action. The target that an earlier process recorded stays valid while the action runs.
pub async fn read(
    job: &Job<ActionSetController>,
    task: &Task,
    index: usize,
    planned: &PlannedAction,
) -> Result<Result<Params, blueprint::Error>, Error> {
    let saved = PhaseJournal::read(&job.journal_entries, index, "").notes.remove(TARGET_NOTE);
    let saved: Option<SavedTarget> = saved.and_then(|text| serde_json::from_str(&text).ok());
    let time = saved.as_ref().map_or_else(|| Timestamp::now().to_string(), |target| target.time.clone());
    let reading = task.wait("reading what its templates need");
    let params = fetch(job, task, planned, saved.as_ref(), &time).await;
    drop(reading);
    if let (Ok(params), None) = (&params, &saved) {
        let value = serde_json::to_string(&params.to_saved_target(time)).unwrap_or_default();
        let note = Effect::Note { action: index, phase: String::new(), key: TARGET_NOTE.into(), value };
        job.journal.record_intent(note).await?;
    }
    Ok(params)
}

/// Retries while the API server is unavailable.
async fn fetch(
    job: &Job<ActionSetController>,
    task: &Task,
    planned: &PlannedAction,
    saved: Option<&SavedTarget>,
    time: &str,
) -> Result<Params, blueprint::Error> {
    let client = &job.context.leader.client;
    let show_wait = |error: &blueprint::Error| task.wait(format!("trying again: {error}"));
    let fetch = || params::fetch(client, &planned.spec, saved, time, &job.id.namespace);
    RetryPolicy::with_timeout(FETCH_TIMEOUT).run(blueprint::Error::is_retryable, show_wait, fetch).await
}
