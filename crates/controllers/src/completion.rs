//! The status of a Backup or Restore while it waits for item operations, and when it has ended.

use jiff::Timestamp;
use plimsoll_api::plimsoll::v1alpha1::{OperationState, ReasonCount};
use plimsoll_engine::item_operations::ItemOperationCounts;
use plimsoll_engine::outcome::Results;
use plimsoll_engine::{Error, kill};
use plimsoll_operations::{Completion, Job, Lifecycle};
use serde_json::{Value, json};

/// An Operation that has ended is kept small.
const MAX_REASONS: usize = 20;

/// The phase and counts that the results mean.
pub fn of(results: &Results, completed: Timestamp) -> Completion {
    let (errors, warnings) = (results.errors.count, results.warnings.count);
    let (phase, state) = match errors {
        0 => ("Completed", OperationState::Succeeded),
        _ => ("PartiallyFailed", OperationState::PartiallyFailed),
    };
    let status = json!({
        "phase": phase,
        "errors": errors,
        "warnings": warnings,
        "completionTimestamp": format!("{completed:.0}"),
    });
    Completion { status, state, reasons: most_frequent_reasons(results), ending: None }
}

/// Adds the counts of the operations that ran in the background. Failed ones are among the errors of the results.
pub fn add_item_operations(completion: &mut Completion, verb: &str, counts: ItemOperationCounts) {
    if counts.attempted == 0 {
        return;
    }
    if let (Some(status), Value::Object(fields)) = (completion.status.as_object_mut(), operation_counts(verb, counts)) {
        status.extend(fields);
    }
}

/// Shows in the subject that it waits for item operations. `failed` if it has errors already.
pub async fn show_waiting<K: Lifecycle>(job: &Job<K>, counts: ItemOperationCounts, failed: bool) -> Result<(), Error> {
    let mut status = operation_counts(K::VERB, counts);
    let phase = if failed { "WaitingForPluginOperationsPartiallyFailed" } else { "WaitingForPluginOperations" };
    status["phase"] = json!(phase);
    kill::point("status.waiting.before");
    job.patch_subject(&json!({ "status": status })).await?;
    kill::point("status.waiting.after");
    Ok(())
}

/// Shows in the subject that it is being finalized. `failed` if it has errors.
pub async fn show_finalizing<K: Lifecycle>(job: &Job<K>, failed: bool) -> Result<(), Error> {
    let phase = if failed { "FinalizingPartiallyFailed" } else { "Finalizing" };
    kill::point("status.finalizing.before");
    job.patch_subject(&json!({ "status": { "phase": phase } })).await?;
    kill::point("status.finalizing.after");
    Ok(())
}

/// The counts of item operations, as Backup and Restore have them.
fn operation_counts(verb: &str, counts: ItemOperationCounts) -> Value {
    let name = |word: &str| format!("{verb}ItemOperations{word}");
    json!({
        name("Attempted"): counts.attempted,
        name("Completed"): counts.completed,
        name("Failed"): counts.failed,
    })
}

/// The most frequent reasons for which items were skipped or failed.
fn most_frequent_reasons(results: &Results) -> Vec<ReasonCount> {
    let mut all: Vec<_> = results.reasons.iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let count = |((outcome, reason), count): (&(&'static str, String), &u64)| ReasonCount {
        outcome: Some((*outcome).to_owned()),
        reason: Some(reason.clone()),
        count: i64::try_from(*count).ok(),
        ..ReasonCount::default()
    };
    all.into_iter().take(MAX_REASONS).map(count).collect()
}
