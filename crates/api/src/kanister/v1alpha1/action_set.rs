//! `ActionSet`: a request to run actions of blueprints.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use serde_json::Value;

use super::{Artifact, ObjectReference};
use crate::macros::{string_enum, wire_struct};
use crate::summary::ProgressSummary;

wire_struct! {
    /// The actions.
    #[derive(CustomResource)]
    #[kube(
        group = "cr.kanister.io", version = "v1alpha1", kind = "ActionSet", plural = "actionsets", namespaced,
        status = "ActionSetStatus",
        doc = "A request to run actions of blueprints.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct ActionSetSpec {
        /// Actions to run, all at the same time.
        pub actions: Vec<ActionSpec>,
    }

    /// One action to run.
    pub struct ActionSpec {
        /// Name of the action in the blueprint.
        pub name: Option<String>,
        /// Object the action runs on.
        pub object: Option<ObjectReference>,
        /// Name of the blueprint, in the ActionSet's namespace.
        pub blueprint: Option<String>,
        /// Input artifacts by name.
        pub artifacts: BTreeMap<String, Artifact>,
        /// ConfigMaps the templates use, by name.
        pub config_maps: BTreeMap<String, ObjectReference>,
        /// Secrets the templates use, by name.
        pub secrets: BTreeMap<String, ObjectReference>,
        /// Profile: where data is stored.
        pub profile: Option<ObjectReference>,
        /// Kopia server of Kanister before 0.120; tolerated.
        pub repository_server: Option<ObjectReference>,
        /// Merged over the spec of every pod the action starts.
        #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
        pub pod_override: BTreeMap<String, Value>,
        /// Options the templates use.
        pub options: BTreeMap<String, String>,
        /// Version of the functions to use.
        pub preferred_version: Option<String>,
        /// Labels of every pod the action starts.
        pub pod_labels: BTreeMap<String, String>,
        /// Annotations of every pod the action starts.
        pub pod_annotations: BTreeMap<String, String>,
    }

    /// Status of an ActionSet.
    pub struct ActionSetStatus {
        /// State of all actions together.
        pub state: Option<ActionState>,
        /// The actions, in the order of the spec.
        pub actions: Vec<ActionStatus>,
        /// Why the actions failed.
        pub error: Option<ErrorMessage>,
        /// Progress of all actions together.
        pub progress: Option<ActionProgress>,
        /// Plimsoll: conditions of the ActionSet.
        pub conditions: Vec<Condition>,
        /// Plimsoll: the generation whose work has ended, set together with the last phase.
        pub observed_generation: Option<i64>,
        /// Plimsoll: rate, time left, stalls.
        pub plimsoll: Option<ProgressSummary>,
    }

    /// Status of one action.
    pub struct ActionStatus {
        /// Name of the action in the blueprint.
        pub name: Option<String>,
        /// Object the action runs on.
        pub object: Option<ObjectReference>,
        /// Name of the blueprint.
        pub blueprint: Option<String>,
        /// Its phases, in order.
        pub phases: Vec<Phase>,
        /// Output artifacts by name; templates until the action is complete.
        pub artifacts: BTreeMap<String, Artifact>,
        /// The phase that runs last, whether or not the others failed.
        pub defer_phase: Option<Phase>,
        /// Plimsoll: progress of this action.
        pub progress: Option<ActionProgress>,
    }

    /// One phase of an action.
    pub struct Phase {
        /// Name of the phase.
        pub name: Option<String>,
        /// State of the phase.
        pub state: Option<ActionState>,
        /// What its function returned.
        #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
        pub output: BTreeMap<String, Value>,
        /// Progress of the phase.
        pub progress: Option<PhaseProgress>,
    }

    /// Progress of a phase.
    pub struct PhaseProgress {
        /// Percent done with two decimals: `43.33`.
        pub progress_percent: Option<String>,
        /// Bytes downloaded.
        pub size_downloaded_b: Option<i64>,
        /// Bytes uploaded.
        pub size_uploaded_b: Option<i64>,
        /// Bytes to download, as far as known.
        pub estimated_download_size_b: Option<i64>,
        /// Bytes to upload, as far as known.
        pub estimated_upload_size_b: Option<i64>,
        /// Seconds left, as far as known.
        pub estimated_time_seconds: Option<i64>,
        /// When any of this last changed.
        pub last_transition_time: Option<Time>,
    }

    /// Progress of an ActionSet or of one of its actions.
    pub struct ActionProgress {
        /// Phase that runs now.
        pub running_phase: Option<String>,
        /// Plimsoll: all phases that run now, as `action/phase`.
        pub running_phases: Vec<String>,
        /// Percent done with two decimals: `43.33`.
        pub percent_completed: Option<String>,
        /// Bytes downloaded.
        pub size_downloaded_b: Option<i64>,
        /// Bytes uploaded.
        pub size_uploaded_b: Option<i64>,
        /// Bytes to download, as far as known.
        pub estimated_download_size_b: Option<i64>,
        /// Bytes to upload, as far as known.
        pub estimated_upload_size_b: Option<i64>,
        /// When any of this last changed.
        pub last_transition_time: Option<Time>,
    }

    /// Why something failed.
    pub struct ErrorMessage {
        /// Human-readable message.
        pub message: Option<String>,
    }
}

string_enum! {
    /// State of an ActionSet or of a phase.
    pub enum ActionState {
        Pending = "pending",
        Running = "running",
        Complete = "complete",
        Failed = "failed",
    }
}

impl ActionState {
    /// Whether the state is final.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }
}
