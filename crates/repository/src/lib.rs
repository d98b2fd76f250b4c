//! The restic repository engine: reads and writes repositories in restic's format.
//!
//! ```text
//!  Repository::open ─▶ index (blob ─▶ pack, offset)
//!     backup   files ─▶ chunks ─▶ blobs ─▶ packs ─▶ index ─▶ snapshot
//!     restore  snapshot ─▶ trees ─▶ blobs grouped by pack ─▶ files
//!     check    every referenced blob exists and matches its ID
//! ```
//!
//! What a caller may rely on:
//! - Packs are durable before the index that references them, and the index before the snapshot. A process killed at any point
//!   leaves an intact repository, and the next backup uses what was stored.
//! - All data is verified against its ID before it is used; every new blob is decrypted and hashed again before its pack is
//!   closed.
//! - All work reports to a [`plimsoll_progress::Task`] and ends soon after [`Cancel`] was set.
//!
//! What it must never do: panic on the content of a repository, write outside a restore's target, or exceed its memory budget.
//!
//! The calls block; run them on a thread of their own (`spawn_blocking`), with a Tokio runtime behind the store.

pub mod backup;
mod blob_index;
mod blob_read;
mod browse;
mod cancel;
mod check;
mod concurrently;
mod confined_path;
mod error;
mod file_cache;
mod forget;
pub mod format;
mod index_load;
mod keys;
mod lock;
mod memory;
mod open;
mod pack_check;
mod pack_file;
mod pack_parts;
mod pack_writer;
mod prefetch;
mod prune;
mod read_ahead;
mod read_plan;
mod repair_index;
mod repository;
pub mod restore;
mod snapshots;
mod stop;
mod store_waits;
mod system;
mod tree_cache;
mod upgrade;
mod used_blobs;
mod verify;

pub use browse::{Browser, Stats};
pub use cancel::Cancel;
pub use check::{CheckOutcome, ReadData};
pub use error::{RepositoryError, Result};
pub use forget::{CalendarDuration, Kept, RetentionPolicy, SnapshotGroup};
pub use format::id::Id;
pub use keys::KeyInfo;
pub use lock::{HolderLiveness, Lock, LockFile, LockHolder, LockKind, machine};
pub use memory::MemoryLimit;
pub use open::password_in_file;
pub use prune::{PreparedPrune, PruneOptions, PruneOutcome, PrunePlan};
pub use repair_index::IndexRepair;
pub use repository::{OpenOptions, Repository};
pub use snapshots::ReadableSnapshots;
pub use verify::{Damage, VerifyOutcome};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
