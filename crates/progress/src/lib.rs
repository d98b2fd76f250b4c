//! The progress model: operations, tasks and meters, and what can honestly be said about them.
//!
//! Everything long-running reports through this crate and nowhere else. Workers hold cheap handles and count; whoever
//! wants to show something takes a [`Snapshot`], which is plain data, and draws what [`view`] makes of it.
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

mod assemble;
mod below;
mod cell;
mod clock;
mod counts;
pub mod cut;
mod frame;
mod graft;
mod meter;
mod operation;
mod order;
mod pace;
pub mod percent;
mod rate;
mod replica;
mod restore;
mod sampler;
mod snapshot;
mod speed;
mod stall;
mod state;
mod task;
mod text;
mod tree;
mod trees;
mod verdict;
pub mod view;
mod wait;

pub use clock::{Clock, VirtualClock};
pub use counts::{Counts, Total, Unit};

pub use cut::Limits;
pub use frame::{Encoder, FRAME_VERSION, Frame, FrameError};
pub use graft::Graft;
pub use meter::Meter;
pub use operation::{Observer, Operation};
pub use percent::{Percent, percent_string};
pub use rate::TimeLeft;
pub use replica::{Applied, Replica};
pub use snapshot::{Ages, Folded, Node, Snapshot};
pub use speed::Speed;
pub use stall::{Stall, StallReason, StallRule};
pub use state::{Ending, State};
pub use task::Task;
pub use trees::{Shown, Trees};
pub use wait::Wait;
