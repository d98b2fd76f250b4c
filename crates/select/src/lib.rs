//! Pure decisions: which objects, in which order, changed how.
//!
//! ```text
//!   Backup / Restore spec ──compile──▶ Selection ──ask, item by item──▶ Include | Exclude(why)
//!   group-resources       ──order────▶ run order
//!   object + patch        ──apply────▶ object        (merge, JSON and strategic patches; resource modifiers)
//!   volume                ──policies─▶ what to do with it
//!   custom resource       ──schema───▶ pruned, with defaults, or why it is invalid; ──path──▶ its columns
//! ```
//!
//! Everything here is a function of its arguments: no cluster, no clock, no file, no async. Names of custom resources'
//! fields are the callers' affair; this crate takes strings and JSON.

mod error;
pub mod glob;
pub mod includes;
pub mod labels;
pub mod merge_patch;
pub mod modifiers;
pub mod names;
pub mod order;
pub mod path;
pub mod policies;
pub mod quantity;
pub mod resources;
pub mod schema;
pub mod selection;
pub mod strategic;

pub use error::Error;
pub use selection::{Selection, Verdict};
