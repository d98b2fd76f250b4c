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
    /// Kanister's object reference: `apiVersion` is the version without the group, `group` is a field of its own.
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

    /// Output of one action and input of another.
    pub struct Artifact {
        /// Strings by name.
        pub key_value: BTreeMap<String, String>,
        /// A Kopia snapshot, as JSON in a string.
        pub kopia_snapshot: Option<String>,
    }
}
