//! Volume data: one trait, three movers, each transfer a process of its own.
//!
//! ```text
//!  agent, leader                       plimsoll mover (one job, one process)            restic | kopia
//!  spawn(Job) ── job, secrets: stdin ─▶ run ─▶ Mover ─▶ built-in engine
//!     │                                   │        └──▶ guarded child ─▶ exec ────────▶ the program
//!     ├─ cancel: stdin ──────────────────▶│                                                 │
//!     └─ graft ◀── frames, verdict: stdout ┘◀───────── progress, read from its output ───────┘
//! ```
//!
//! What a caller may rely on:
//! - Secrets never stand in an argument list, in an environment, or in an error text. They travel over a pipe and lie in
//!   files of a private directory in memory, which is removed at the end (`docs/volumes.md`).
//! - Whoever started a mover and dies takes it along, and a mover that dies takes its program along.
//! - A transfer that was asked to stop has ended within five seconds. One that falls silent is a stall, by name.
//! - What could not be read or restored is named in the outcome; what failed as a whole is a [`MoverError`] with a reason.
//!
//! What it must never do: print, know Kubernetes, show 100 % before the end, or delete a snapshot that was not named.

mod builtin;
mod child;
mod confine;
mod error;
mod interrupt;
mod job;
mod kopia;
mod lifecycle;
mod meters;
mod mover;
mod outcome;
mod parent;
mod place;
mod private;
mod probe;
mod restic;
mod root;
mod silent;
mod status;
mod survey;
mod tool;
mod traffic;
mod version;
mod wire;

pub use child::{guard, run};
pub use error::{MoverError, Result};
pub use job::{Backup, Job, Kind, Repository, Restore, Work};
pub use lifecycle::{
    DEFAULT_PASSWORD, Holder, LockWatch, References, Unfinished, orphans, own_pod, repository_prefix, restic_identifier,
};
pub use mover::{Fidelity, Mover, Session, mover};
pub use outcome::{BackupOutcome, Ensured, LockInfo, Outcome, Problem, Problems, RestoreOutcome, SnapshotInfo};
pub use parent::{Canceller, Launch, Transfer, spawn, spawn_at};
pub use place::{Place, Secret};
pub use plimsoll_repository::{Cancel, LockHolder, Standing};
pub use private::sweep;
pub use status::{SCANNING, TransferProgress, progress_towards, transfer_progress};
pub use wire::{Said, understand};
