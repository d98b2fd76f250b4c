//! Prune: frees the space of blobs that no snapshot uses.
//!
//! ```text
//!  plan (shared lock)   index + snapshots ─▶ used blobs ─▶ decision: packs to remove, packs to rewrite
//!  slice (exclusive)    refresh ─▶ decide again ─▶ new packs ─▶ new index files ─▶ old index files deleted ─▶ old packs deleted
//! ```
//!
//! Guarantees:
//! - A pack is deleted only when no index file names it, and an index file only when all that it names and snapshots need is in
//!   another one. So a process that is killed at any point leaves a valid repository, and the next prune does the rest.
//! - What is used is decided from the snapshots and the index as they are under the exclusive lock.
//! - Moved blobs are decrypted and compared with their IDs. If one is damaged, another copy is used. Without one, the prune ends
//!   before it deletes anything of that pack.
//! - A slice ends after [`PruneOptions::slice`]. Other clients can take the lock between two slices.

mod decision;
mod delete;
mod dropped_copies;
mod index_rewrite;
mod inventory;
mod options;
mod pack_use;
mod plan;
mod rewrite;
mod rewrite_memory;
mod run;

pub(crate) use index_rewrite::rewrite_index;
pub use options::PruneOptions;
pub use plan::PrunePlan;
pub use run::{PreparedPrune, PruneOutcome};
