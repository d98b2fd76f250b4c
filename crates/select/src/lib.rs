//! Selection, order and modification of objects, as pure functions.
//!
//! ```text
//!   Backup / Restore spec ──compile──▶ Selection ──item──▶ Include | Exclude(reason)
//!   group-resources       ──order────▶ order of backup or restore
//!   object + patch        ──apply────▶ object        (merge, JSON and strategic patches; resource modifiers)
//!   volume                ──policies─▶ skip, fs-backup, snapshot, custom
//!   custom resource       ──schema───▶ pruned, defaulted, validated; ──JSONPath──▶ printer columns
//! ```
//!
//! No cluster, no clock, no files, no async. This crate knows no custom resource types; it takes strings and JSON.

mod config_map;
mod error;
pub mod glob;
pub mod includes;
pub mod json_path;
mod json_type;
pub mod labels;
pub mod merge_patch;
pub mod names;
pub mod quantity;
pub mod resource_modifiers;
pub mod resource_order;
pub mod resource_policies;
pub mod resources;
pub mod schema;
pub mod selection;
pub mod strategic_merge_patch;

pub use error::Error;
pub use json_type::json_type;
pub use selection::{FilterDecision, Selection};
