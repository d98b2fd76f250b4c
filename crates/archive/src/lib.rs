//! The backup on disk: where every file of a backup lies, what is in it, and how to read one that nobody vouches for.
//!
//! ```text
//!  bucket/[prefix/]backups/<b>/velero-backup.json          layout: the keys
//!                              <b>.tar.gz                  tarball: Writer, Reader
//!                              <b>-results.gz, …           codec and the shapes beside it
//!                  restores/<r>/…
//!  scratch/                                                spool: what a restore selected, by row
//! ```
//!
//! Everything streams, in bounded memory. What is read is foreign input: it is an error with a name, or it is data; it
//! is never a path that gets opened, and nothing of it is written anywhere but into the spool.

pub mod codec;
mod error;
pub mod layout;
pub mod operations;
pub mod resource_list;
pub mod results;
pub mod spool;
pub mod tarball;
pub mod volumes;

pub use error::Error;
