//! What any backup, restore or action is doing, and why it is stuck, from the cluster's own objects alone.
//!
//! ```text
//!   kubeconfig of the user ── ClusterReader, ClusterWatch ──► ClusterState (objects, and resources that could not be read)
//!                                                              │
//!                                  observed_tree (pure) ◄──────┴──────► causes (pure)
//!                                      │                                   │
//!                  ProgressTracker ─► progress::Operation                  │
//!                                      │                                   │
//!                                      └──────► overview, explain ◄────────┘ ──► `top`, `why`, `watch`, dashboard
//! ```
//!
//! It works beside an unchanged Velero or Kanister with nothing of ours installed. Objects stay raw JSON, because an object of
//! any version, even one that breaks its own schema, must still be shown.
//!
//! It must never write to the cluster, fail because a resource may not be read (it reports that instead), or print.

pub mod causes;
mod cluster_reader;
mod cluster_state;
mod cluster_watch;
mod evidence;
mod explain;
mod kind;
mod object;
mod observed_task;
mod observed_tree;
mod overview;
mod progress_tracker;
mod transfer;

pub use causes::{Cause, Certainty, causes};
pub use cluster_reader::{ClusterReader, Scope};
pub use cluster_state::{ClusterState, UnreadResource};
pub use cluster_watch::ClusterWatch;
pub use explain::{Explanation, Verdict, explain};
pub use kind::{Kind, UnknownKind};
pub use object::{Object, Reference};
pub use observed_task::{ObservedTask, TaskStatus};
pub use observed_tree::observed_tree;
pub use overview::{OperationSummary, Overview, VolumeProgress, operation_of};
pub use progress_tracker::ProgressTracker;
pub use transfer::Transfer;
