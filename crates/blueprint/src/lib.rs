//! Kanister's blueprints: validation, templates, functions, and the `kando` commands that run in pods.
//!
//! ```text
//!  Blueprint ──validate──▶ findings                      pod of a phase
//!      │                                                 ┌──────────────────────────────┐
//!      ▼                                                 │ sh -c '… | kando location …' │
//!  phase.args ──template (params)──▶ arguments ──▶ func ─┤   stdout: data or outputs    │
//!                                                        │   stderr: progress frames    │
//!                                                        └──────────────────────────────┘
//! ```
//!
//! This crate must never let a template read the environment of the controller or exceed its limits, nor write anything but data
//! and Kanister's protocol to the standard output of a pod.

mod action_set_status;
mod error;
pub mod functions;
pub mod kando;
pub mod kopia_server;
pub mod output;
pub mod params;
pub mod percent;
pub mod profile;
pub mod results;
pub mod template;
pub mod validate;

pub use action_set_status::action_set_status;
pub use error::Error;
