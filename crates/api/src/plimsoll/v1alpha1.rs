//! `plimsoll.dev/v1alpha1`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use serde_json::Value;

use crate::macros::{open_enum, wire_struct};
use crate::summary::ProgressSummary;

/// Condition: the work has not ended. Tools that follow kstatus, such as Flux, wait while it is true.
pub const RECONCILING: &str = "Reconciling";
/// Condition: the work is in progress.
pub const PROGRESSING: &str = "Progressing";
/// Condition: a task does not go on as it should. Not `Stalled`, which means failed to tools that follow kstatus.
pub const PROGRESS_STALLED: &str = "ProgressStalled";
/// Condition: the work has ended, successfully or not.
pub const COMPLETE: &str = "Complete";

wire_struct! {
    /// The subject of an operation and what is done with it. Unlike Velero's and Kanister's kinds, an Operation has a status
    /// subresource.
    #[derive(CustomResource)]
    #[kube(
        group = "plimsoll.dev", version = "v1alpha1", kind = "Operation", plural = "operations", namespaced,
        status = "OperationStatus",
        doc = "A running or finished backup, restore, deletion, ActionSet or other operation: its tasks and their progress.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct OperationSpec {
        /// What the user created: a Backup, a Restore, an ActionSet, ...
        pub subject: Option<SubjectReference>,
        /// What is done with the subject: `backup`, `restore`, `run`, `delete`, `verify`, `maintain`.
        pub verb: Option<String>,
        /// Set to true to cancel the operation as soon as that is safe.
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
        /// Uid, to tell it from another object of the same name.
        pub uid: Option<String>,
    }

    /// Status of an operation.
    pub struct OperationStatus {
        /// Number of the attempt, from one.
        pub attempt: Option<i64>,
        /// Epoch of the leader that wrote this: a leader with a lower one has lost the operation.
        pub epoch: Option<i64>,
        /// State of the operation.
        pub state: Option<OperationState>,
        /// The progress tree, limited in size; smaller once the operation has ended.
        #[schemars(extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true))]
        pub tree: Option<Value>,
        /// `Reconciling`, `Progressing`, `ProgressStalled` and `Complete`.
        pub conditions: Vec<Condition>,
        /// When the work started.
        pub start_timestamp: Option<Time>,
        /// When the work ended, successfully or not.
        pub completion_timestamp: Option<Time>,
        /// The stages and how long they took, once the operation has ended.
        pub stages: Vec<Stage>,
        /// Percent, rate, time left, stalls.
        pub plimsoll: Option<ProgressSummary>,
        /// Throughput and percent over the time of the operation: few samples, however long it takes.
        pub samples: Vec<Sample>,
        /// The end of the log while the operation runs; removed once the log is stored as a file.
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

    /// The numbers of an operation at one moment.
    pub struct Sample {
        /// The time, in milliseconds since 1970.
        pub at: Option<i64>,
        /// Bytes a second, or the unit that the operation counts instead.
        pub rate: Option<i64>,
        /// Hundredths of a percent.
        pub percent: Option<i64>,
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
        /// Result.
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
    /// Whether the state is final.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Succeeded | Self::PartiallyFailed | Self::Failed | Self::Cancelled)
    }
}

impl Operation {
    /// Whether cancellation is requested.
    pub fn is_cancelled(&self) -> bool {
        self.spec.cancel == Some(true)
    }
}
