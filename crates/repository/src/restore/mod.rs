//! Restoring: a walk over the trees plans files in portions; each portion's blobs are fetched pack by pack, decoded by
//! the workers and written to every place that needs them.
//!
//! ```text
//!  walk ──portion of files──▶ ranges of packs ──fetch (a few ahead)──▶ workers (open, verify, write, metadata)
//! ```

mod attributes;
mod holes;
mod metadata;
mod newborn;
mod options;
mod place;
mod plan;
mod removing;
mod run;
mod shares;
mod uncached;
mod write;

pub use options::{Overwrite, RestoreOptions, RestoreOutcome};
