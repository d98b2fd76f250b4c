//! Restore: a walk over the trees plans files in batches; the blobs of a batch are fetched pack by pack, decoded by the workers and
//! written to all files that need them.
//!
//! ```text
//!  walk ──batch of files──▶ ranges of packs ──read-ahead──▶ workers (decrypt, verify, write, metadata)
//! ```

mod attributes;
mod direct_io;
mod holes;
mod metadata;
mod new_file;
mod options;
mod plan;
mod remove;
mod run;
mod target_entry;
mod work_shares;
mod write;

pub use options::{Overwrite, RestoreOptions, RestoreOutcome};
