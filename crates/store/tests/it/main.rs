//! One conformance suite for every kind of store, and what only one of them can show.

mod conformance;
mod directory;
mod s3;
mod watchdog;
