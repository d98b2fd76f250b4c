//! The controller framework: how a custom resource becomes an operation, and how that operation survives its process.
//!
//! ```text
//!  watch ──▶ observe ──▶ decide (pure) ──▶ act: start, queue, reject, cancel, clean up
//!                                           │
//!             lifecycle: job ── tree ──▶ status_writer: CR status, Operation   (at most one write a second)
//!                         └── effects ─▶ journal, behind the leader's fence
//! ```
//!
//! Only the leader runs operations. They survive it: a leader that dies leaves subject, Operation and journal behind, and the next
//! one resumes from there. Nothing here knows what an operation does: no backup, no restore, no volume.

mod active_operations;
pub mod controller;
mod epoch;
mod event_recorder;
mod history;
pub mod journal;
mod leader_client;
pub mod leader_election;
pub mod leader_label;
pub mod lifecycle;
mod live_progress;
mod observed_generation;
mod operation_record;
mod pages;
mod panics;
pub mod peers;
mod progress_floor;
pub mod projection;
mod queue;
pub mod record_version;
mod recorded_work;
mod status_writer;
mod subject;
mod subject_status;
mod watch_backoff;
mod write_budget;

pub use active_operations::ActiveOperations;
pub use epoch::next_epoch;
pub use event_recorder::{EventRecorder, EventType, TOKEN_ANNOTATION};
pub use history::{HISTORY_LABEL, HistoryRecord};
pub use journal::ConfigMapJournal;
pub use leader_client::LeaderClient;
pub use lifecycle::{Completion, Job, Lifecycle, OperationRuntime, Requirements, SubjectState};
pub use live_progress::{Flush, LiveProgress};
pub use operation_record::{Holder, OperationRecord};
pub use pages::list_in_pages;
pub use panics::catch_panic;
pub use progress_floor::ItemCounters;
pub use recorded_work::run_recorded;
pub use status_writer::WRITE_INTERVAL;
pub use subject::{Subject, operation_name};
pub use subject_status::{is_same_except_times, summary_patch};
pub use tokio_util::sync::CancellationToken;
pub use watch_backoff::WatchBackoff;
pub use write_budget::WriteBudget;
