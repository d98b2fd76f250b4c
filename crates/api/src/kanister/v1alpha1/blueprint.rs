//! `Blueprint`: actions and their phases. It has no spec: its fields are at the top level of the object.

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
    doc = "Actions on an application, each a list of phases.",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
pub struct BlueprintFields {
    /// The actions, by name.
    #[serde(deserialize_with = "wire::null_as_default", skip_serializing_if = "wire::is_absent")]
    pub actions: BTreeMap<String, BlueprintAction>,
    /// Unknown fields, written back unchanged.
    #[serde(flatten, deserialize_with = "wire::unknown_top_level_fields")]
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
        /// Output artifacts, as templates.
        pub output_artifacts: BTreeMap<String, Artifact>,
        /// The phases, run in order.
        pub phases: Vec<BlueprintPhase>,
        /// The phase that runs last, whether or not the others failed.
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
