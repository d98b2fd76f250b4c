//! The progress model: operations, tasks and meters, and what can honestly be said about them.
//!
//! Everything long-running reports through this crate and nowhere else. Workers hold cheap handles and count. A display takes a
//! [`Snapshot`], which is plain data, and draws the rows of [`view`].
//!
//! ```text
//!   Operation ── Task ── Task ── Meter ◄── add / skip / fail      (workers: atomics, no lock, no clock)
//!       │
//!       ├─ snapshot ─► Snapshot ─► view::rows ─► terminal, TUI, dashboard
//!       │                 │
//!       │                 └─► Encoder ─► Frame ══ pipe, stream, CR ══► Replica ─► graft under a Task
//!       └─ resume ◄── a saved Snapshot (its counts become floors: nothing shown goes back)
//! ```
//!
//! It must never block the work, print, sleep, start a thread, know an async runtime or know Kubernetes. It must never
//! show a percentage that falls, 100 % before the end, a time left of zero while work remains, or a wait without a reason.

mod chart;
mod child_summary;
mod clock;
mod counts;
mod estimate;
mod explanation;
mod frame;
mod gain;
mod graft;
mod history;
pub mod kopia_output;
mod meter;
mod operation;
mod pace;
pub mod percent;
mod queue;
mod ratchet;
mod rate;
mod replica;
mod resume;
mod sampler;
mod snapshot;
mod snapshot_builder;
mod speed;
mod stall;
mod stall_check;
mod state;
mod task;
mod task_cell;
mod text;
mod token;
mod tree;
mod tree_order;
mod trees;
pub mod truncate;
pub mod view;
mod wait;
mod work;

pub use chart::{Chart, Sample};
pub use clock::{Clock, VirtualClock};
pub use counts::{Counts, Total, Unit};

pub use explanation::Explanation;
pub use frame::{Encoder, FRAME_VERSION, Frame, FrameError};
pub use graft::Graft;
pub use history::{History, RunRecord, TransferRate};
pub use meter::Meter;
pub use operation::{Observer, Operation};
pub use percent::{Percent, PercentRule, percent_string};
pub use ratchet::Ratchet;
pub use rate::TimeLeft;
pub use replica::{FrameOutcome, Replica};
pub use snapshot::{Ages, FoldedCounts, Node, Snapshot};
pub use speed::Speed;
pub use stall::{Stall, StallReason, StallRule, StallVerdict};
pub use state::{Ending, State};
pub use task::Task;
pub use token::{InvalidToken, Token};
pub use tree::Earlier;
pub use trees::{TreeRegistration, Trees};
pub use truncate::Limits;
pub use wait::Wait;
pub use work::{Basis, EarlierRate, EarlierRuns, Source, Work};
