//! Volume data on its way: one controller for every kind of transfer, on the node that has the volume.
//!
//! ```text
//!  PodVolumeBackup  ─┐ watch          ┌─ slot of this node ─ directory of the volume ─ repository, password
//!  PodVolumeRestore ─┼▶ decide (pure) ┴▶ run ── plimsoll mover (a process of its own) ── frames ─▶ tree
//!  DataUpload       ─┤                    └──────── report: status.progress, status.plimsoll ◀──────┘
//!  DataDownload     ─┘ (once `exposing` has made their volume)
//! ```
//!
//! What a reader of the custom resource may rely on: both byte counts appear together, `bytesDone` stays below `totalBytes`
//! until the write that says `Completed`, a transfer that ends badly keeps what it reached and has a reason in its message,
//! and one whose agent or mover was killed is taken up again by the next one. An agent never makes a repository.

mod again;
mod agent;
mod cache;
mod decide;
mod directory;
mod error;
pub(crate) mod handshake;
pub(crate) mod kind;
mod lease;
pub(crate) mod moved;
pub(crate) mod report;
mod repository;
mod run;
pub(crate) mod write;

pub use agent::{Agent, AgentSettings};
pub use lease::{AgentLease, LEASE_PREFIX, RENEW_EVERY, lease_name};
