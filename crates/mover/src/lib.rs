//! Volume data movers: one trait, three implementations, one process per transfer.
//!
//! ```text
//!  agent, leader                       plimsoll mover (one job, one process)            restic | kopia
//!  spawn(Job) ── job, secrets: stdin ─▶ run ─▶ Mover ─▶ built-in engine
//!     │                                   │        └──▶ guarded child ─▶ exec ────────▶ the program
//!     ├─ cancel: stdin ──────────────────▶│                                                 │
//!     └─ graft ◀── frames, result: stdout ─┘◀───────── progress, read from its output ───────┘
//! ```
//!
//! What a caller may rely on:
//! - Secrets never appear in an argument list, in an environment, or in an error text. They are passed over a pipe and stored
//!   in files of a private directory in memory, which is removed at the end (`docs/reference/volumes.md`).
//! - A mover dies with the process that started it, and a program dies with its mover.
//! - A cancelled transfer ends within five seconds. One that sends no frames is reported as a stall.
//! - The outcome lists every file that was not read or restored. A transfer that fails as a whole returns a [`MoverError`] with
//!   a reason.
//!
//! What it must never do: print, know Kubernetes, report 100 % before the end, or delete a snapshot that was not requested.

mod builtin;
mod builtin_maintenance;
mod error;
mod error_patterns;
mod interrupt;
mod job;
mod job_runner;
mod kopia;
mod lifecycle;
mod meters;
mod mover;
mod mover_process;
mod outcome;
mod private_directory;
mod probe;
mod process_io;
mod process_state;
mod program;
mod protocol;
mod repository_location;
mod restic;
mod sandbox;
mod transfer_progress;
mod version;
mod volume_root;
mod volume_scan;

pub use error::{MoverError, Result};
pub use job::{Backup, Job, Maintenance, MoverKind, Repository, Restore, Verify, Work};
pub use job_runner::{guard, run};
pub use lifecycle::{
    DEFAULT_PASSWORD, LockHolderStatus, References, StaleLockDetector, UnfinishedBackup, orphaned_snapshots,
    own_pod_uid, repository_prefix, restic_identifier,
};
pub use mover::{Fidelity, Mover, Session, mover};
pub use mover_process::{Canceller, MoverCommand, MoverProcess, spawn, spawn_at};
pub use outcome::{
    BackupOutcome, Damage, EnsureOutcome, LockInfo, MaintenanceOutcome, Outcome, Problem, Problems, RepositoryUsage,
    RestoreOutcome, SnapshotInfo, VerifyOutcome,
};
pub use plimsoll_repository::{Cancel, HolderLiveness, LockHolder};
pub use private_directory::remove_stale_directories;
pub use protocol::{MoverMessage, parse_message};
pub use repository_location::{RepositoryLocation, Secret};
pub use transfer_progress::{SCANNING, TransferProgress, transfer_progress, transfer_progress_with_total};
