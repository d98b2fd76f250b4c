//! `Blueprint`: how actions are done. Its fields sit at the top level of the object.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Artifact, ObjectReference};
use crate::macros::wire_struct;
use crate::wire::{self, Extra};

/// The actions of a blueprint.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cr.kanister.io",
    version = "v1alpha1",
    kind = "Blueprint",
    plural = "blueprints",
    namespaced,
    no_spec,
    doc = "How the actions on an application are done, phase by phase.",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
pub struct BlueprintFields {
    /// The actions, by name.
    #[serde(deserialize_with = "wire::null_as_default", skip_serializing_if = "wire::is_absent")]
    pub actions: BTreeMap<String, BlueprintAction>,
    /// What was there and is not declared above; written back as it was.
    #[serde(flatten, deserialize_with = "wire::undeclared_at_top")]
    pub extra: Extra,
}

wire_struct! {
    /// One action of a blueprint.
    pub struct BlueprintAction {
        /// Name of the action.
        pub name: Option<String>,
        /// Kind of object it is for; for readers only.
        pub kind: Option<String>,
        /// ConfigMaps it uses; for readers only.
        pub config_map_names: Vec<String>,
        /// Secrets it uses; for readers only.
        pub secret_names: Vec<String>,
        /// Artifacts it uses; for readers only.
        pub input_artifact_names: Vec<String>,
        /// Artifacts it leaves, as templates.
        pub output_artifacts: BTreeMap<String, Artifact>,
        /// What is done, one after another.
        pub phases: Vec<BlueprintPhase>,
        /// What is done at the end whatever happened.
        pub defer_phase: Option<BlueprintPhase>,
    }

    /// One phase of an action.
    pub struct BlueprintPhase {
        /// Function that does it.
        pub func: Option<String>,
        /// Name of the phase.
        pub name: Option<String>,
        /// Secrets and ConfigMaps the templates use, by name.
        pub objects: BTreeMap<String, ObjectReference>,
        /// Arguments of the function, as templates.
        #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
        pub args: BTreeMap<String, Value>,
    }
}
