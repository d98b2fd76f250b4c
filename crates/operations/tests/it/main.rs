//! The controller framework on the in-process API: leader election, journal, queue, Operation record and status writer.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod active_operations;
mod cluster;
mod journal;
mod leader_election;
mod lifecycle;
mod live_progress;
mod operation_name;
mod scripted_backup;
mod takeover;
mod tool_rules;
mod watch_backoff;
mod write_budget;
