//! `plimsoll.dev/v1alpha1`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use serde_json::Value;

use crate::macros::{open_enum, wire_struct};
use crate::summary::ProgressSummary;

/// Condition: the work is going on.
pub const PROGRESSING: &str = "Progressing";
/// Condition: a task does not advance.
pub const STALLED: &str = "Stalled";
/// Condition: the work has ended, well or not.
pub const COMPLETE: &str = "Complete";

wire_struct! {
    /// What the operation is about. Unlike the kinds it is about, an Operation has a status subresource.
    #[derive(CustomResource)]
    #[kube(
        group = "plimsoll.dev", version = "v1alpha1", kind = "Operation", plural = "operations", namespaced,
        status = "OperationStatus",
        doc = "Something a user asked for, while it is being done: its tasks, how far they are and what they wait for.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct OperationSpec {
        /// What the user created: a Backup, a Restore, an ActionSet, ...
        pub subject: Option<SubjectReference>,
        /// What is done with the subject: `backup`, `restore`, `run`, `delete`, `verify`, `maintain`.
        pub verb: Option<String>,
        /// Set to true to end the operation as soon as that is safe.
        pub cancel: Option<bool>,
    }

    /// The object an operation is about; it is in the operation's namespace.
    pub struct SubjectReference {
        /// Group and version.
        pub api_version: Option<String>,
        /// Kind.
        pub kind: Option<String>,
        /// Name.
        pub name: Option<String>,
        /// Uid, so that another object of the same name is not taken for it.
        pub uid: Option<String>,
    }

    /// How far the operation is.
    pub struct OperationStatus {
        /// How often the work has been taken up, from one.
        pub attempt: Option<i64>,
        /// Epoch of the leader that wrote this: a leader with a lower one has lost the operation.
        pub epoch: Option<i64>,
        /// State of the operation.
        pub state: Option<OperationState>,
        /// The progress tree, cut to size; gone once the operation has ended.
        #[schemars(extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true))]
        pub tree: Option<Value>,
        /// `Progressing`, `Stalled` and `Complete`.
        pub conditions: Vec<Condition>,
        /// When the work began.
        pub start_timestamp: Option<Time>,
        /// When the work ended, well or not.
        pub completion_timestamp: Option<Time>,
        /// The stages and how long they took, once the operation has ended.
        pub stages: Vec<Stage>,
        /// Percent, rate, time left, stalls.
        pub plimsoll: Option<ProgressSummary>,
        /// The end of the log as it is now; gone once the operation has ended and the log is a file.
        pub log: Option<LogTail>,
        /// Why items were skipped or failed, the most frequent reasons first, once the operation has ended.
        pub reasons: Vec<ReasonCount>,
    }

    /// How many items had one outcome for one reason.
    pub struct ReasonCount {
        /// `skipped` or `failed`.
        pub outcome: Option<String>,
        /// Stable reason.
        pub reason: Option<String>,
        /// How many items.
        pub count: Option<i64>,
    }

    /// The end of a log that is being written.
    pub struct LogTail {
        /// How many bytes of the log come before this text.
        pub offset: Option<i64>,
        /// Whole lines.
        pub text: Option<String>,
    }

    /// A stage of an operation that has ended.
    pub struct Stage {
        /// Name of the stage.
        pub name: Option<String>,
        /// How it ended.
        pub state: Option<OperationState>,
        /// How long it took.
        pub milliseconds: Option<i64>,
        /// Bytes that it moved, where it counts any; of `reading` the size of the backup's tarball.
        pub bytes: Option<i64>,
    }
}

open_enum! {
    /// State of an operation or stage.
    pub enum OperationState {
        Waiting = "Waiting",
        Running = "Running",
        Succeeded = "Succeeded",
        PartiallyFailed = "PartiallyFailed",
        Failed = "Failed",
        Cancelled = "Cancelled",
    }
}

impl OperationState {
    /// Whether it will not change any more.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Succeeded | Self::PartiallyFailed | Self::Failed | Self::Cancelled)
    }
}

impl Operation {
    /// Whether a user has asked for the end of it.
    pub fn is_cancelled(&self) -> bool {
        self.spec.cancel == Some(true)
    }
}
