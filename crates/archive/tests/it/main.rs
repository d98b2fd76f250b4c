//! Tests of the backup on disk.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod codec;
mod layout;
mod spool;
mod tarball;
