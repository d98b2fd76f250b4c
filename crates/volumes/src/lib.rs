//! How volume data gets into a backup and back.
//!
//! ```text
//!  fs_backup    files of pods' volumes ─────▶ PodVolumeBackup, PodVolumeRestore ─┐
//!  csi          VolumeSnapshots ── exposer ─▶ DataUpload, DataDownload ──────────┴─▶ an agent (transfer) ─▶ repositories
//!  snapshotter  snapshots of plugins ───────▶ VolumePluginBackup, VolumePluginRestore
//! ```
//!
//! The leader creates transfers and waits for them; the node agents run them. Nothing here decides when a backup or a restore runs.

pub mod csi;
pub mod exposer;
pub mod fs_backup;
mod mover_choice;
mod node_agent_config;
pub mod repositories;
mod snapshot_choice;
pub mod snapshotter;
pub mod storage_location;
pub mod transfer;
mod usual_work;
mod volume_job;
pub mod volume_plan;
mod volume_work;

pub use mover_choice::MoverChoice;
pub use node_agent_config::{NodeAgentConfig, NodeAgentConfigError};
pub use usual_work::movement_work;
pub use volume_job::VolumeJob;
pub use volume_work::{WorkPlan, plan_work};
