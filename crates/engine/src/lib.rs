//! Backup and restore as plan, run and outcome.
//!
//! ```text
//!  Selection ──▶ plan ──▶ run ──▶ outcome
//!                 │        │        └ for each item: succeeded, skipped or failed, with a stable reason; spooled, never held
//!                 │        └ meters (progress), a cancellation token, and ports to whoever journals and fences
//!                 └ a value: small enough to show (`--dry-run`), to keep and to make again after a crash
//! ```
//!
//! The engine knows nothing of controllers, leases or custom resources' status: it reports to [`plimsoll_progress`] and asks its
//! [`ports`] before anything that cannot be repeated. It must never hold all items in memory, never write progress to the
//! API server itself, and never print.

mod asked;
pub mod backup;
pub mod cluster;
pub mod delete;
mod error;
pub mod exec;
mod files;
mod heard;
pub mod hooks;
pub mod kill;
pub mod log;
pub mod operations;
pub mod outcome;
mod patience;
pub mod ports;
pub mod registry;
pub mod restore;
pub mod selection;
mod waits;

pub use error::Error;
pub use heard::Heard;
pub use patience::Patience;
pub use waits::show_waits;
