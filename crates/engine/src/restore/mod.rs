//! Restore of objects in two steps: plan everything, then run.

pub mod action;
pub mod actions;
pub mod hooks;
mod item;
mod plan;
mod run;
mod save;

pub use item::Origin;
pub use plan::{RestorePlan, plan};
pub use run::RestoreRun;
pub use save::save;
