//! Tests of the backup on disk.

mod codec;
mod layout;
mod spool;
mod tarball;
