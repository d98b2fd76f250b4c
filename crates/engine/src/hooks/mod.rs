//! Commands in containers around the backup of a pod: which ones a pod has, and running them so that no pair stays open.
//!
//! ```text
//!  intent (the post-hooks) ──▶ pre-hooks ──▶ the pod is backed up ──▶ post-hooks ──▶ settled
//!         durable                                                      whoever takes over runs these first
//! ```

mod pair;
mod rules;

pub use pair::{HookCounts, Hooks, OpenPair, Opened, close_left_open};
pub use rules::{Hook, HookRules, PodHooks};
