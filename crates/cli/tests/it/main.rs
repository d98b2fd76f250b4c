//! The binary, as users and crashes meet it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod architecture;
mod backup_fields;
mod backup_hooks;
mod bed;
mod beside_velero;
mod cancel;
mod cli_objects;
mod cli_verbs;
mod commands;
mod deletion;
mod faults;
mod killed;
mod location_faults;
mod queue;
mod refused;
mod round_trip;
mod schedule;
mod sync;
mod velero_cli;
mod velero_restores;
