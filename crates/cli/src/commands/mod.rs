//! One module for each command.

pub mod agent;
pub mod backup;
pub mod blueprint;
pub mod cancel;
pub mod completion;
pub mod crds;
pub mod create;
pub mod delete;
pub mod demo;
pub mod download;
pub mod get;
pub mod kando;
pub mod local;
pub mod location;
pub mod logs;
pub mod mover;
pub mod plan;
pub mod plugin;
pub mod preview;
pub mod restore;
pub mod restore_wait;
pub mod schedule;
pub mod server;
pub mod snapshot_location;
pub mod version;
