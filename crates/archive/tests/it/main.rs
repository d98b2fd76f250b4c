//! Tests of the backup on disk.

mod tarball;
