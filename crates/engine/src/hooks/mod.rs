//! Backup hooks: which hooks a pod has, and how they are run so that post-hooks always follow pre-hooks.
//!
//! ```text
//!  intent (the post-hooks) ──▶ pre-hooks ──▶ the pod is backed up ──▶ post-hooks ──▶ result recorded
//!         durable                                                      a new leader runs these first
//! ```

mod rules;
mod runner;

pub use rules::{Hook, HookRules, PodHooks};
pub use runner::{HookCounts, HookRunner, PendingPostHooks, StartedHooks, run_pending_post_hooks};
