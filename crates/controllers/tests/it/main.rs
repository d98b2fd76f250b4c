//! Decisions of the controllers, and the server on the in-process API.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod bed;
mod crds;
mod cron;
mod expiry;
mod hostile_bucket;
mod rbac;
mod secrets;
mod sync;
mod verification;
