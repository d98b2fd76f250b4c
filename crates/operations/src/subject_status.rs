//! The status of a subject while its operation runs: computed from the tree, written in one place.
//!
//! ```text
//!   every second:  tree ──▶ status ──▶ written if it has changed      (best effort)
//!   publish:       tree ──▶ status ──▶ written before work continues  (retried)
//! ```

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use plimsoll_api::summary::ProgressSummary;
use plimsoll_engine::cluster::Cluster;
use plimsoll_engine::ports::LeadershipGuard;
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_progress::{Operation, Snapshot, StallReason, State};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tracing::debug;

use crate::operation_record::OperationRecord;
use crate::progress_floor::ItemCounters;
use crate::projection;

/// The fields that a kind adds to its status, computed from the tree. `None` while there is nothing to write.
pub type KindFields = Box<dyn Fn(&Snapshot) -> Option<Value> + Send + Sync>;

/// The only writer of a subject's status while its operation runs.
pub struct SubjectStatus {
    cluster: Cluster,
    record: Arc<OperationRecord>,
    /// The path of the subject's custom resource.
    path: String,
    counters: ItemCounters,
    fields: KindFields,
    /// Locked during a write, so that no older status follows a newer one.
    last: Mutex<LastStatus>,
}

/// The status that was written last.
#[derive(Default)]
struct LastStatus {
    written: Value,
    signature: Option<(State, Option<(String, StallReason)>)>,
    conditions: Vec<Condition>,
}

impl SubjectStatus {
    pub(crate) fn new(
        cluster: Cluster,
        record: Arc<OperationRecord>,
        path: String,
        counters: ItemCounters,
        fields: KindFields,
    ) -> Self {
        Self { cluster, record, path, counters, fields, last: Mutex::default() }
    }

    /// Writes what has changed since the last write, if anything has. Best effort.
    pub(crate) async fn refresh(&self, snapshot: &Snapshot) {
        let mut last = self.last.lock().await;
        let Some(status) = self.status(snapshot, &mut last) else { return };
        if is_same_except_times(&status, &last.written) {
            return;
        }
        kill::point("status.progress.before");
        match self.cluster.merge(&self.path, patch(&status)).await {
            Ok(_) => last.written = status,
            Err(error) => debug!("progress of {}: {error}", self.record.name()),
        }
        kill::point("status.progress.after");
    }

    /// Writes the status as it is now, and retries while the API server does not answer.
    pub(crate) async fn publish(&self, tree: &Operation) -> Result<(), Error> {
        let mut last = self.last.lock().await;
        self.record.check_effect()?;
        let Some(status) = self.status(&tree.snapshot(), &mut last) else { return Ok(()) };
        let body = patch(&status);
        RetryPolicy::default().run(&tree.root(), || self.cluster.merge(&self.path, body.clone())).await?;
        last.written = status;
        Ok(())
    }

    fn status(&self, snapshot: &Snapshot, last: &mut LastStatus) -> Option<Value> {
        let fields = (self.fields)(snapshot)?;
        let mut status = projection::progress(snapshot, self.counters);
        status["plimsoll"] = summary_patch(&projection::summary(snapshot, Timestamp::now()));
        status["conditions"] = json!(last.conditions(snapshot));
        extend(&mut status, &fields);
        Some(status)
    }
}

impl LastStatus {
    /// The message of a condition changes with every task: only a change of its status is worth a write.
    fn conditions(&mut self, snapshot: &Snapshot) -> &[Condition] {
        let signature = (snapshot.state(), snapshot.stall.as_ref().map(|stall| (stall.task.to_string(), stall.reason)));
        if self.signature.as_ref() != Some(&signature) {
            self.conditions = projection::conditions(snapshot, &self.conditions, Timestamp::now());
            self.signature = Some(signature);
        }
        &self.conditions
    }
}

/// Adds the fields of the kind. Where the kind has a percentage by rules of its own, the summary shows the same.
pub(crate) fn extend(status: &mut Value, fields: &Value) {
    if let (Some(status), Some(fields)) = (status.as_object_mut(), fields.as_object()) {
        status.extend(fields.clone());
    }
    if let Some(percent) = fields.pointer("/progress/percentCompleted") {
        if status["plimsoll"]["percent"] != *percent {
            // Its numbers are not those of the tree.
            status["plimsoll"]["token"] = Value::Null;
        }
        status["plimsoll"]["percent"] = percent.clone();
    }
}

fn patch(status: &Value) -> Vec<u8> {
    json!({ "status": status }).to_string().into_bytes()
}

/// A merge patch leaves alone what it does not name: a stall that is over, a time left that is no longer known, must be
/// named as null.
pub fn summary_patch(summary: &ProgressSummary) -> Value {
    let mut value = json!({ "percent": null, "rate": null, "unit": null, "secondsLeft": null, "from": null, "estimate": null, "waitsFor": null, "token": null, "lastAdvance": null, "task": null, "verdict": null, "stalled": null });
    let shown = serde_json::to_value(summary).unwrap_or_default();
    if let (Some(value), Value::Object(shown)) = (value.as_object_mut(), shown) {
        value.extend(shown);
    }
    value
}

/// Whether two statuses differ in nothing but the time of the last advance and the token.
pub fn is_same_except_times(a: &Value, b: &Value) -> bool {
    let strip = |value: &Value| {
        let mut value = value.clone();
        if let Some(summary) = value.get_mut("plimsoll").and_then(Value::as_object_mut) {
            summary.remove("lastAdvance");
            // A number that is not shown here may have changed.
            summary.remove("token");
        }
        value
    };
    strip(a) == strip(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_kind_win_and_its_percentage_is_the_percentage_of_the_summary() {
        let mut status = json!({ "plimsoll": { "percent": "~40.00", "rate": 3 }, "conditions": [] });
        extend(&mut status, &json!({ "state": "running", "progress": { "percentCompleted": "44.44" } }));
        assert_eq!(
            status["plimsoll"],
            json!({ "percent": "44.44", "rate": 3, "token": null }),
            "these are other numbers"
        );
        assert_eq!((&status["state"], &status["conditions"]), (&json!("running"), &json!([])));
    }

    #[test]
    fn a_kind_without_a_percentage_leaves_that_of_the_tree() {
        let mut status = json!({ "plimsoll": { "percent": "~40.00" } });
        extend(&mut status, &json!({ "phase": "InProgress" }));
        assert_eq!(status["plimsoll"]["percent"], "~40.00");
    }

    #[test]
    fn a_later_time_of_the_last_advance_alone_is_not_worth_a_write() {
        let status = |percent: &str, time: &str| json!({ "plimsoll": { "percent": percent, "lastAdvance": time } });
        assert!(is_same_except_times(&status("1.00", "now"), &status("1.00", "later")));
        assert!(!is_same_except_times(&status("1.00", "now"), &status("2.00", "now")));
    }
}
