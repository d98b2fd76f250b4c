//! Backing up: files to chunks to blobs to packs, directories to trees, then the index, then the snapshot.
//!
//! ```text
//!  walker ──batches of files──▶ workers (read, cut, hash, compress, seal) ──packs──▶ uploads
//!     │                            │ a directory whose entries are all done becomes a tree
//!     └──unchanged: parent's blobs─┘
//!  scanner: counts beside it, for the total
//! ```

mod buffers;
mod directory;
mod files;
mod memory;
mod node;
mod options;
mod packer;
mod pool;
mod run;
mod scan;
mod upload;
mod verify;
mod walk;

pub use options::{BackupOptions, Compression, DeviceIds, Parent, Target};
pub use run::{BackupOutcome, Problem};
