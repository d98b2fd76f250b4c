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
mod completion;
mod context;
pub mod cron;
mod csi;
mod downloads;
mod exposing;
mod garbage;
mod item_operations;
mod links;
mod location;
mod plugins;
mod policy;
pub mod repositories;
mod requests;
mod restore_files;
pub mod rights;
mod schedule;
mod server;
mod snapshots;
mod subjects;
mod sync;
pub mod transfer;
mod volumes;

pub use actionsets::FINALIZER as ACTION_SET_FINALIZER;
pub use context::{PluginSettings, Settings};
pub use downloads::Downloads;
pub use plimsoll_blueprint::functions::Tools;
pub use plimsoll_engine::Error;
pub use server::{LEASE, Server, install_crds};
pub use volumes::{Helper, Method, MoverChoice, PlannedVolume, Wishes, plan as plan_volumes};
