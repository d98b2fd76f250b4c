//! Tests of the public interface of the controllers.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod crds;
mod cron;
mod rbac;
