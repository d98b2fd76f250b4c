//! The controllers: one module for each custom resource, named after it, and the server that runs them.
//!
//! ```text
//!  watch ──▶ observe ──▶ decide (pure) ──▶ act: a call into the engine, `operations` or `volumes`
//! ```
//!
//! Only the leader runs controllers. Nothing here prints, and nothing here decides which objects are selected.

mod action_set;
mod backup;
mod backup_storage_location;
mod blueprint;
mod completion;
mod context;
mod crds;
pub mod cron;
mod defaults;
mod delete_backup_request;
mod disabled;
mod download_request;
mod job_extensions;
mod plugins;
mod proof_key;
pub mod rbac;
mod resource_policy;
mod restore;
mod running_restores;
mod schedule;
mod server;
mod server_status_request;
mod settings;
mod sync_warnings;
mod wiring;

pub use action_set::FINALIZER as ACTION_SET_FINALIZER;
pub use backup::verification;
pub use crds::install_crds;
pub use defaults::Defaults;
pub use disabled::{DisableableController, DisabledControllers, RESTORE_ONLY};
pub use plimsoll_blueprint::functions::ToolsImage;
pub use plimsoll_engine::Error;
pub use server::{LEASE, Server};
pub use settings::{DownloadSettings, PluginSettings, Settings};
