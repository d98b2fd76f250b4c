//! One conformance suite for every kind of store, and what only one of them can show.

mod again;
mod azure;
mod conformance;
mod directory;

mod s3;
mod watchdog;
