//! Types of every custom resource Plimsoll reads or writes, their defaults and their validation.
//!
//! ```text
//!   Rust types ──► crds()    ──► deploy/crds/*.yaml        installed in the cluster
//!       │            └───────► validate::check(raw JSON)   errors shown to the user
//!       └──────► serde      ──► objects as Go writes them   API server and backup files
//! ```
//!
//! | module | group |
//! |---|---|
//! | [`velero::v1`], [`velero::v2alpha1`] | `velero.io`, compatible with Velero 1.18.3 |
//! | [`kanister::v1alpha1`] | `cr.kanister.io` |
//! | [`plimsoll::v1alpha1`] | `plimsoll.dev`, our own |
//!
//! Field names, labels and annotations of CRDs are defined here and nowhere else. This crate must never call a cluster or decide
//! what a controller does next, and it preserves unknown fields: an object survives a read and a write unchanged.

mod macros;

pub mod client_error;
mod crd;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod go;
pub mod kanister;
pub mod labels;
pub mod plimsoll;
pub mod summary;
pub mod validate;
pub mod velero;
pub mod wire;

pub use crd::{crds, file_name, manifest};
