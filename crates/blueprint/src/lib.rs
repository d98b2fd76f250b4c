//! Kanister's blueprints: what a phase says, what it means once its templates are filled in, and the commands that its
//! shell lines call inside the pods.
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
//! What it must never do: let a template read the controller's own environment, or run for longer, deeper or larger
//! than its limits; write anything but data and Kanister's protocol to a pod's standard output.

pub mod board;
mod error;
pub mod functions;
pub mod kando;
pub mod output;
pub mod params;
pub mod percent;
pub mod place;
pub mod template;
pub mod validate;

pub use error::Error;
