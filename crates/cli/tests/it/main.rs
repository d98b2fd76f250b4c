//! The binary, as users and crashes meet it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod actions;
mod actions_killed;
mod api_server_restart;
mod architecture;
mod backup_fields;
mod backup_hooks;
mod bed;
mod beside_velero;
mod cancel;
mod cli_files;
mod cli_objects;
mod cli_verbs;
mod commands;
mod dashboard;
mod deletion;
mod demo;
mod faults;
mod installed;
mod kando;
mod killed;
mod location_faults;
mod observe_velero;
mod planted;
mod plugins;
mod pod_volumes;
mod queue;
mod refused;
mod repositories;
mod restore_fields;
mod restore_hooks;
mod restore_hostile;
mod restore_killed;
mod restore_preview;
mod restore_velero;
mod restore_waits;
mod round_trip;
mod schedule;
mod sync;
mod top_terminal;
mod velero_cli;
mod velero_restores;
mod volumes;
mod volumes_faults;
mod volumes_killed;
