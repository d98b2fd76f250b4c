//! Types of every custom resource Plimsoll reads or writes, their defaults and their validation.
//!
//! ```text
//!   Rust types ──► crds()    ──► deploy/crds/*.yaml        what a cluster is told
//!       │            └───────► validate::check(raw JSON)   what a user is told
//!       └──────► serde      ──► objects as Go writes them   what the wire carries
//! ```
//!
//! | module | group |
//! |---|---|
//! | [`velero::v1`], [`velero::v2alpha1`] | `velero.io`, compatible with Velero 1.18.3 |
//! | [`kanister::v1alpha1`] | `cr.kanister.io` |
//! | [`plimsoll::v1alpha1`] | `plimsoll.dev`, our own |
//!
//! The spelling of a CRD lives here and nowhere else. This crate must never talk to a cluster, decide what a controller does
//! next, or lose a field it does not know: whatever another program wrote is still there after we have written the object back.

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
