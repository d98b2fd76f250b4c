//! One module for each custom resource: observe, decide, act.
//!
//! ```text
//!  watch ──▶ observe ──▶ decide (pure) ──▶ act: start, queue, refuse, stop, tidy
//!                                           │
//!                        subject: engine run ── tree ──▶ report: CR status, Operation   (at most one write a second)
//!                                           └── effects ─▶ journal, behind the leader's fence
//! ```
//!
//! Only the leader runs controllers. Work survives it: a leader that dies in the middle leaves subject, Operation and journal
//! behind, and the next one goes on from there. Nothing here prints, and nothing here decides which objects are selected.

mod actionsets;
mod context;
mod control;
mod crds;
pub mod cron;
mod csi;
mod decide;
mod downloads;
mod events;
mod exposing;
mod floor;
mod garbage;
mod history;
pub mod journal;
pub mod leader;
mod leader_pod;
mod links;
pub mod live;
mod location;
mod operation;
mod peers;
mod plugins;
mod policy;
pub mod project;
mod queue;
mod report;
pub mod repositories;
mod requests;
mod restore_files;
pub mod rights;
mod schedule;
mod server;
mod snapshots;
mod subject;
mod subjects;
mod sync;
pub mod transfer;
mod volumes;
mod watch_backoff;
mod writes;

pub use actionsets::FINALIZER as ACTION_SET_FINALIZER;
pub use context::{PluginSettings, Settings};
pub use crds::install_crds;
pub use downloads::Downloads;
pub use leader_pod::LEADER as LEADER_LABEL;
pub use operation::operation_name;
pub use plimsoll_blueprint::functions::ToolsImage;
pub use plimsoll_engine::Error;
pub use server::{LEASE, Server};
pub use volumes::{Helper, Method, MoverChoice, PlannedVolume, Wishes, plan as plan_volumes};
