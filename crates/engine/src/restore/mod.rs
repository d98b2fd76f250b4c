//! Restore of objects in two steps: plan everything, then run.
//!
//! ```text
//!  archive ──plan──▶ spool (selected, in run order) ──run──▶ item: strip ▸ actions ▸ modifiers ▸ address ▸ create or meet ▸ follow up
//!                    reserve (what actions may ask for) ────────────┘ additional items come before the item that needs them
//! ```

pub mod action;
pub mod actions;
mod claims;
mod create;
mod existing;
pub mod hooks;
mod item;
mod namespaces;
mod ownership;
mod pace;
mod plan;
pub mod preview;
mod requests;
mod run;
mod save;
mod snapshot;
mod steps;
mod volumes;

pub use existing::ExistingPolicy;
pub use item::Origin;
pub use plan::{RestorePlan, plan};
pub use preview::preview;
pub use run::{Inner, Limits, RestoreRun, Rules};
pub use save::save;
pub use volumes::Volumes;
