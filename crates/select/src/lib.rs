//! Pure decisions: which objects, in which order, changed how.
//!
//! ```text
//!   Backup / Restore spec ──compile──▶ Selection ──ask, item by item──▶ Include | Exclude(why)
//!   group-resources       ──order────▶ run order
//!   object + patch        ──apply────▶ object        (merge, JSON and strategic patches; resource modifiers)
//! ```
//!
//! Everything here is a function of its arguments: no cluster, no clock, no file, no async. Names of custom resources'
//! fields are the callers' affair; this crate takes strings and JSON.

pub mod merge_patch;
pub mod strategic;
