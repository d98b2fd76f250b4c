//! The lifecycle of a subject (a Backup, a Restore, an ActionSet …) from its first observation to its end: one controller, generic
//! over the kind.
//!
//! ```text
//!  watch ──▶ reconcile: observe ──▶ decide (pure) ──▶ act ──▶ run: open the record and the journal ──▶ execute ──▶ finish
//! ```

mod decide;
mod job;
mod queueing;
mod reconcile;
mod run;
mod settled;

use std::collections::BTreeSet;
use std::path::PathBuf;

use jiff::Timestamp;
use plimsoll_api::plimsoll::v1alpha1::{OperationState, ReasonCount};
use plimsoll_engine::Error;
use plimsoll_progress::{Ending, Snapshot, Trees};
use serde::Serialize;
use serde_json::{Value, json};

pub use self::decide::SubjectState;
pub use self::job::Job;
pub use self::reconcile::run_lifecycle;

use crate::active_operations::ActiveOperations;
use crate::controller::NamespacedResource;
use crate::leader_client::LeaderClient;
use crate::progress_floor::ItemCounters;
use crate::write_budget::WriteBudget;

/// State that the lifecycles of all kinds share.
pub struct OperationRuntime {
    /// The connection of the leader.
    pub leader: LeaderClient,
    /// The operations of this process.
    pub active: ActiveOperations,
    /// Shared by the status writers.
    pub write_budget: WriteBudget,
    /// The directory of the spools of running operations.
    pub scratch: PathBuf,
    /// The trees of running operations, by the uid of their subject.
    pub trees: Trees,
}

/// The parts of a lifecycle that differ between the kinds of subjects.
pub trait Lifecycle: Sized + Send + Sync + 'static {
    /// The custom resource.
    type Resource: NamespacedResource + Serialize;
    /// Services that the work needs.
    type Context: Send + Sync + 'static;
    /// Its state in memory while it runs, beside the tree.
    type LiveState: Default + Send + Sync + 'static;
    /// The verb of its operations, which is the first half of their names.
    const VERB: &'static str;
    /// The item counters of its status.
    const ITEM_COUNTERS: ItemCounters;
    /// Keeps its object until what it left elsewhere is gone.
    const FINALIZER: Option<&'static str> = None;
    /// Whether the finalizer is removed when the work has ended: it is there so that a deletion cancels the work first.
    const FINALIZER_WHILE_RUNNING: bool = false;
    /// Whether its durations are kept for the next one that does the same.
    const KEEPS_HISTORY: bool = true;
    /// The JSON pointer to its phase.
    const PHASE_POINTER: &'static str = "/status/phase";

    /// The state that a phase means.
    fn state(phase: &str) -> SubjectState;
    /// Sets what the spec leaves to the defaults of the server.
    fn set_defaults(_subject: &mut Self::Resource, _context: &Self::Context) {}
    /// The faults in the spec, as far as the object alone shows them.
    fn validate(raw: &Value) -> Vec<String>;
    /// Checks what it needs of other objects.
    fn check_requirements(
        subject: &Self::Resource,
        context: &Self::Context,
    ) -> impl Future<Output = Result<Requirements, Error>> + Send;
    /// The status while it waits in the queue, if the kind has one.
    fn queued_status(position: usize) -> Option<Value>;
    /// The status of a subject that is not started because of its faults.
    fn rejected_status(faults: &[String]) -> Value {
        json!({ "phase": "FailedValidation", "validationErrors": faults })
    }
    /// The status of a subject that failed as a whole.
    fn failed_status(reason: &str) -> Value {
        json!({ "phase": "Failed", "failureReason": reason, "completionTimestamp": format!("{:.0}", Timestamp::now()) })
    }
    /// The namespaces, of those in the cluster, that no other subject of the kind may work on at the same time.
    fn exclusive_namespaces(_object: &Value, _namespaces: &[String]) -> BTreeSet<String> {
        BTreeSet::new()
    }
    /// How many of them run at the same time.
    fn concurrency(context: &Self::Context) -> usize;
    /// The fields of its status, beside the item counters, that follow from the tree and what is kept in memory. `None`
    /// while there is nothing to write.
    fn status_fields(_live: &Self::LiveState, _snapshot: &Snapshot) -> Option<Value> {
        Some(json!({}))
    }
    /// Does the work. Returns the status to end with.
    fn execute(job: &Job<Self>) -> impl Future<Output = Result<Completion, Error>> + Send;
    /// Undoes what was started, and leaves what a user needs to see why. Best effort. Nothing, if the work undoes it itself.
    fn abort(_job: &Job<Self>, _error: &Error) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The result of checking the objects that a subject requires.
#[derive(Debug, Default)]
pub struct Requirements {
    /// Defects that waiting does not repair.
    pub faults: Vec<String>,
    /// Objects that do not exist yet.
    pub missing: Option<String>,
}

/// The completion of the work.
#[derive(Debug)]
pub struct Completion {
    /// The last status, as a merge patch.
    pub status: Value,
    /// The state of the Operation.
    pub state: OperationState,
    /// Why items were skipped or failed.
    pub reasons: Vec<ReasonCount>,
    /// How the tree ends, unless it succeeded.
    pub ending: Option<Ending>,
}
