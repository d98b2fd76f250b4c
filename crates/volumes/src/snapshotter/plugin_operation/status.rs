//! The progress of an operation on its task and in the status of its record.

use jiff::Timestamp;
use plimsoll_engine::item_operations::ItemOperationProgress;
use plimsoll_engine::{Error, RetryPolicy};
use plimsoll_operations::{is_same_except_times, projection, summary_patch};
use plimsoll_plugin::sanitize;
use plimsoll_progress::{Total, Unit};
use serde_json::{Value, json};
use tracing::debug;

use super::{PluginOperation, PluginState, RecordOwner, now};
use crate::snapshotter::records::{has_ended, has_failed, text};

impl PluginOperation {
    /// Shows the progress as a task.
    pub(super) fn update_task(&self, progress: &ItemOperationProgress) {
        let unit = if progress.counts_bytes() { Unit::Bytes } else { Unit::Steps };
        for task in [&self.task, &self.own.root()] {
            let meter = task.meter(unit);
            if progress.total > 0 {
                meter.set_total(Total::Growing(progress.total));
            }
            meter.set_done(progress.done);
        }
        if !progress.description.is_empty() {
            self.task.say(&progress.description);
        }
    }

    pub(super) fn summary(&self) -> Value {
        summary_patch(&projection::summary(&self.own.snapshot(), Timestamp::now()))
    }

    pub(super) fn status(&self, progress: &ItemOperationProgress) -> Value {
        let mut status = json!({ "phase": "InProgress", "message": progress.description, "plimsoll": self.summary() });
        if let Some(started) = progress.started {
            status["startTimestamp"] = json!(format!("{started:.0}"));
        }
        if progress.counts_bytes() && (progress.total > 0 || progress.done > 0) {
            status["progress"] = json!({ "totalBytes": signed(progress.total), "bytesDone": signed(progress.done) });
        } else if progress.total > 0 {
            let counted = format!("{} of {} {}", progress.done, progress.total, progress.units);
            status["message"] = json!(format!("{} ({counted})", progress.description).trim_start());
        }
        status
    }

    /// Writes a changed status into the record. A failed write is not repeated: the next poll writes a newer status.
    pub(super) async fn write(&mut self, status: &Value) {
        let (RecordOwner::Server(name) | RecordOwner::Plugin(name)) = &self.record_owner else { return };
        if is_same_except_times(status, &self.written) {
            return;
        }
        match self.records.patch(name, &json!({ "status": status })).await {
            Ok(_) => self.written = status.clone(),
            Err(error) => debug!("record {name}: {error}"),
        }
    }

    pub(super) fn show_plugin_record(&mut self, record: &Value) -> PluginState {
        let count = |field: &str| {
            let count = record.pointer(&format!("/status/progress/{field}")).and_then(Value::as_i64);
            count.unwrap_or(0)
        };
        let message = sanitize(text(record, "/status/message"));
        let report = plimsoll_plugin::wire::OperationProgress {
            n_completed: count("bytesDone"),
            n_total: count("totalBytes"),
            operation_units: "Bytes".to_owned(),
            description: message.clone(),
            ..Default::default()
        };
        let (progress, fault) = self.watch.read(&report);
        if let Some(fault) = fault {
            self.task.hint(fault.to_string());
        }
        self.update_task(&progress);
        match (has_ended(record), has_failed(record)) {
            (true, true) if message.is_empty() => PluginState::Ended(Err(sanitize(text(record, "/status/phase")))),
            (true, true) => PluginState::Ended(Err(message)),
            (true, false) => PluginState::Ended(Ok(())),
            (false, _) => PluginState::InProgress(progress),
        }
    }

    /// Ends the operation. The server's clock fills in the times that a plugin leaves empty.
    pub async fn end(&mut self, how: &Result<(), String>) -> Result<(), Error> {
        self.finish(how, if how.is_ok() { "Completed" } else { "Failed" }).await
    }

    /// Ends the wait for the operation.
    pub async fn abandon(&mut self, why: &str) -> Result<(), Error> {
        self.finish(&Err(why.to_owned()), "Canceled").await
    }

    async fn finish(&mut self, how: &Result<(), String>, phase: &str) -> Result<(), Error> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        match how {
            Ok(()) => self.task.finish(),
            Err(why) => self.task.fail(why),
        }
        let Some((name, patch)) = self.final_patch(how, phase) else { return Ok(()) };
        RetryPolicy::default().run(&self.task, || self.records.patch(&name, &patch)).await.map(drop)
    }

    fn final_patch(&self, how: &Result<(), String>, phase: &str) -> Option<(String, Value)> {
        match &self.record_owner {
            RecordOwner::None => None,
            RecordOwner::Plugin(name) => {
                let record = self.records.find(|record| text(record, "/metadata/name") == name).unwrap_or_default();
                let mut status = json!({ "plimsoll": self.final_summary(how).0 });
                if text(&record, "/status/completionTimestamp").is_empty() {
                    status["completionTimestamp"] = json!(now());
                }
                if how.is_err() && !has_ended(&record) {
                    status["phase"] = json!(phase);
                    status["message"] = json!(how.as_ref().err());
                }
                Some((name.clone(), json!({ "status": status })))
            }
            RecordOwner::Server(name) => {
                let (summary, total) = self.final_summary(how);
                let mut status = json!({ "phase": phase, "completionTimestamp": now(), "message": how.as_ref().err(),
                    "plimsoll": summary });
                if let Some(total) = total {
                    status["progress"] = json!({ "totalBytes": signed(total), "bytesDone": signed(total) });
                }
                Some((name.clone(), json!({ "status": status })))
            }
        }
    }

    /// The summary of an operation that has ended, and its bytes if it succeeded.
    fn final_summary(&self, how: &Result<(), String>) -> (Value, Option<u64>) {
        let mut summary = json!({ "rate": null, "unit": null, "secondsLeft": null, "verdict": null, "stalled": null, "task": null, "token": null });
        let total = self.own.root().meter(Unit::Bytes).counts().total.value();
        let total = total.filter(|total| how.is_ok() && *total > 0);
        if total.is_some() {
            summary["percent"] = json!("100.00");
        }
        (summary, total)
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
