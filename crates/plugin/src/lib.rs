//! Runs unmodified Velero plugins in supervised processes and adapts them to the engine.
//!
//! ```text
//!  /plugins/* ──discover──▶ PluginRegistry ──session──▶ Session ──call──▶ plugin process (gRPC on a unix socket)
//!                                                         │                  │
//!                            restart, health, deadlines ──┘                  └─ log lines ─▶ LogSink
//! ```
//!
//! Guarantees:
//! - Every call ends: with a response, with the error of the plugin, or with an error that names the plugin and the cause.
//! - A process that exited or failed its health check is restarted at the next call, a limited number of times. A plugin that
//!   is silent but healthy is not restarted.
//! - Text from a plugin is limited in length and has no control characters.
//!
//! This crate must never pass a plugin more environment variables than it needs, wait without a timeout, or repeat a call that
//! may have taken effect.

mod connection;
mod engine_adapters;
mod environment;
mod error;
pub mod framework;
mod handshake;
mod item_actions;
mod launch_config;
mod log_sink;
mod object_store;
mod process;
mod progress;
mod registry;
mod sanitize;
mod session;
mod stale_files;
mod volume_snapshotter;
pub mod wire;

pub use engine_adapters::OperationLogSink;
pub use environment::Environment;
pub use error::{Error, Result};
pub use item_actions::{
    BackupItemActionClient, BackupItemActionOutput, DeleteItemActionClient, ItemActionClient, ItemBlockActionClient,
    PluginActions, RestoreItemActionClient, RestoreItemActionOutput,
};
pub use launch_config::{LaunchConfig, Supervision};
pub use log_sink::{LogLevel, LogLine, LogSink, TracingLogSink};
pub use object_store::{USE_PLUGIN_CONFIG_KEY, open_store};
pub use progress::{ProgressError, ProgressTracker};
pub use registry::{PluginKind, PluginRegistry, RegisteredPlugin, qualified_name};
pub use sanitize::sanitize;
pub use session::{ObserverGuard, Session};
pub use stale_files::remove_stale_files;
pub use volume_snapshotter::{SnapshotProgressQuery, VolumeInfo, VolumeSnapshotterClient};
