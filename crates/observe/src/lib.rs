//! What any backup, restore or action is doing, and why it is stuck, told from the cluster's own objects alone.
//!
//! ```text
//!   kubeconfig of the reader ── gather, live ──► World (objects as they were read, and what could not be looked at)
//!                                                 │
//!                              sketch (pure) ◄────┴────► causes (pure)
//!                                 │                         │
//!              Follower: samples ─► progress::Operation     │
//!                                 │                         │
//!                                 └──► overview, explain ◄──┘ ──► `top`, `why`, `watch`, dashboard
//! ```
//!
//! It works beside an unchanged Velero or Kanister with nothing of ours installed. Objects stay raw JSON, because an object of
//! any version, even one that breaks its own schema, must still be shown.
//!
//! It must never write to the cluster, fail because something may not be read (it says so instead), or print.

pub mod causes;
mod evidence;
mod explain;
mod follow;
mod gather;
mod kind;
mod live;
mod object;
mod overview;
mod sketch;
mod sketches;
mod transfer;
mod world;

pub use causes::{Cause, Certainty, causes};
pub use explain::{Explanation, Verdict, explain};
pub use follow::Follower;
pub use gather::{Gatherer, Scope};
pub use kind::{Kind, UnknownKind};
pub use live::Live;
pub use object::{Object, Reference};
pub use overview::{Carried, Ended, Line, Overview, operation_of};
pub use sketch::{Sketch, Standing};
pub use sketches::sketch;
pub use transfer::Transfer;
pub use world::{Unseen, World};
