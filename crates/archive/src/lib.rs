//! The storage format of backups: keys and contents of all files, and readers for untrusted ones.
//!
//! ```text
//!  bucket/[prefix/]backups/<b>/velero-backup.json          layout: the keys
//!                              <b>.tar.gz                  tarball: Writer, Reader
//!                              <b>-results.gz, …           codec, results, volume_info, synced_backup, …
//!                  restores/<r>/…
//!  scratch/                                                spool: selected objects of a restore
//! ```
//!
//! Everything streams, in bounded memory. Input is untrusted: its paths are never opened, and its contents are written only to
//! the spool.

pub mod codec;
mod error;
pub mod item_operations;
pub mod layout;
mod limited_decoder;
mod memory_estimate;
pub mod proof;
pub mod resource_list;
pub mod results;
pub mod spool;
pub mod synced_backup;
pub mod tarball;
pub mod volume_info;

pub use error::Error;
