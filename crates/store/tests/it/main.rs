//! One conformance suite for every provider, and tests of single providers.

mod azure;
mod conformance;
mod directory;
mod retry;
mod s3;
mod store_server;
mod watchdog;
