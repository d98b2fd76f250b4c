//! The node agent: runs the volume data transfers of its node.
//!
//! ```text
//!  PodVolumeBackup  ─┐ watch          ┌─ slot of this node ─ directory of the volume ─ repository, password
//!  PodVolumeRestore ─┼▶ decide (pure) ┴▶ run ── plimsoll mover (a process of its own) ── frames ─▶ tree
//!  DataUpload       ─┤                    └── status_writer: status.progress, status.plimsoll ◀────┘
//!  DataDownload     ─┘ (once the exposer has prepared their volume)
//! ```
//!
//! What a reader of the custom resource may rely on: both byte counts appear together, `bytesDone` stays below `totalBytes`
//! until the write that says `Completed`, a failed transfer keeps what it reached and has a reason in its message, and a transfer
//! whose agent or mover was killed is resumed by the next one. An agent never creates a repository.

mod agent;
mod cache;
mod decide;
mod directory;

mod lease;
mod repository;
mod restore_marker;
mod restore_wait;
mod run;
mod services;
mod settings;
mod slots;
mod status_writer;
mod volume_io;

pub use agent::Agent;
pub use settings::AgentSettings;
