//! `cr.kanister.io/v1alpha1`.
//!
//! None of these kinds has a status subresource: status is written with `Api::patch` or `Api::replace` of the object itself.

mod action_set;
mod blueprint;
mod profile;

use std::collections::BTreeMap;

use crate::macros::wire_struct;

pub use action_set::{
    ActionProgress, ActionSet, ActionSetSpec, ActionSetStatus, ActionSpec, ActionState, ActionStatus, ErrorMessage,
    Phase, PhaseProgress,
};
pub use blueprint::{Blueprint, BlueprintAction, BlueprintFields, BlueprintPhase};
pub use profile::{Credential, KeyPair, KopiaServerSecret, KopiaServerSecretKey, Location, Profile, ProfileFields};

wire_struct! {
    /// An object, as Kanister names one: `apiVersion` is a bare version, the group stands beside it.
    pub struct ObjectReference {
        /// Version, without the group.
        pub api_version: Option<String>,
        /// API group.
        pub group: Option<String>,
        /// Plural name of the type.
        pub resource: Option<String>,
        /// Kind.
        pub kind: Option<String>,
        /// Name.
        pub name: Option<String>,
        /// Namespace.
        pub namespace: Option<String>,
    }

    /// What one action hands to another.
    pub struct Artifact {
        /// Texts by name.
        pub key_value: BTreeMap<String, String>,
        /// A Kopia snapshot, as JSON in a string.
        pub kopia_snapshot: Option<String>,
    }
}
