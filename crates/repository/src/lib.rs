//! A restic repository: an engine that reads and writes it.
//!
//! ```text
//!  Repository::open ─▶ index (blob ─▶ pack, offset)
//!     backup   files ─▶ chunks ─▶ blobs ─▶ packs ─▶ index ─▶ snapshot
//!     restore  snapshot ─▶ trees ─▶ blobs grouped by pack ─▶ files
//!     check    everything named is there, and is what its name says
//! ```
//!
//! What a caller may rely on:
//! - What is referenced is durable before the reference is: packs, then index, then snapshot. A process killed at any
//!   point leaves a good repository, and the next backup takes up what had been stored.
//! - Everything read is verified against its name before it is used; every new blob is opened and hashed again before
//!   its pack is closed.
//! - All work reports to a [`plimsoll_progress::Task`] and ends soon after [`Cancel`] was asked for.
//!
//! What it must never do: panic on what it reads, write outside a restore's target, or hold more than its budget.
//!
//! The calls block; run them on a thread of their own (`spawn_blocking`), with a Tokio runtime behind the store.

pub mod backup;
mod beneath;
mod blob_index;
mod blob_read;
mod browse;
mod cancel;
mod check;
mod error;
mod file_cache;
pub mod format;
mod index_load;
mod lock;
mod open;
mod pack_file;
mod pack_parts;
mod read_ahead;
mod repository;
pub mod restore;
mod side_by_side;
mod snapshots;
mod system;
mod tree_cache;
mod waits;

pub use browse::{Browser, Stats};
pub use cancel::Cancel;
pub use check::{CheckOutcome, ReadData};
pub use error::{RepositoryError, Result};
pub use format::id::Id;
pub use lock::{Lock, LockFile, LockHolder, LockKind, Standing, machine};
pub use open::password_in_file;
pub use repository::{OpenOptions, Repository};
pub use snapshots::ReadableSnapshots;

/// The example of the README is compiled like any other.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
