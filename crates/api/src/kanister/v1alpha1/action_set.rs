//! `ActionSet`: actions to run now.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use serde_json::Value;

use super::{Artifact, ObjectReference};
use crate::macros::{free_enum, wire_struct};
use crate::summary::ProgressSummary;

wire_struct! {
    /// The actions.
    #[derive(CustomResource)]
    #[kube(
        group = "cr.kanister.io", version = "v1alpha1", kind = "ActionSet", plural = "actionsets", namespaced,
        status = "ActionSetStatus",
        doc = "Actions of blueprints, to be run now.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct ActionSetSpec {
        /// What to do; all of them run at the same time.
        pub actions: Vec<ActionSpec>,
    }

    /// One action to run.
    pub struct ActionSpec {
        /// Name of the action in the blueprint.
        pub name: Option<String>,
        /// What it is done to.
        pub object: Option<ObjectReference>,
        /// Name of the blueprint, in the ActionSet's namespace.
        pub blueprint: Option<String>,
        /// What earlier actions left, by name.
        pub artifacts: BTreeMap<String, Artifact>,
        /// ConfigMaps the templates use, by name.
        pub config_maps: BTreeMap<String, ObjectReference>,
        /// Secrets the templates use, by name.
        pub secrets: BTreeMap<String, ObjectReference>,
        /// Where data goes to and comes from.
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

    /// How far the actions are.
    pub struct ActionSetStatus {
        /// State of all actions together.
        pub state: Option<ActionState>,
        /// The actions, in the order of the spec.
        pub actions: Vec<ActionStatus>,
        /// Why they failed.
        pub error: Option<ErrorMessage>,
        /// Progress of all actions together.
        pub progress: Option<ActionProgress>,
        /// Plimsoll: conditions of the ActionSet.
        pub conditions: Vec<Condition>,
        /// Plimsoll: rate, time left, stalls.
        pub plimsoll: Option<ProgressSummary>,
    }

    /// How far one action is.
    pub struct ActionStatus {
        /// Name of the action in the blueprint.
        pub name: Option<String>,
        /// What it is done to.
        pub object: Option<ObjectReference>,
        /// Name of the blueprint.
        pub blueprint: Option<String>,
        /// Its phases, in order.
        pub phases: Vec<Phase>,
        /// What the action leaves, by name; templates until it has ended well.
        pub artifacts: BTreeMap<String, Artifact>,
        /// The phase that runs at the end whatever happened.
        pub defer_phase: Option<Phase>,
        /// Plimsoll: how far this action is.
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
        /// How far it is.
        pub progress: Option<PhaseProgress>,
    }

    /// How far a phase is.
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

    /// How far an ActionSet, or one of its actions, is.
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
        /// For people.
        pub message: Option<String>,
    }
}

free_enum! {
    /// State of an ActionSet or of a phase.
    pub enum ActionState {
        Pending = "pending",
        Running = "running",
        Complete = "complete",
        Failed = "failed",
    }
}

impl ActionState {
    /// Whether it will not change any more.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }
}
