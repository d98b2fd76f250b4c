//! The dashboard, its event streams, and metrics.
//!
//! ```text
//!   observe::Live ── a cluster a second ──► Overview ──► DashboardState (rows, histories, totals, changes)
//!   progress::Trees (the leader's memory) ──┘             │
//!                                                         ├──► /            the page: static files inside the binary
//!                                                         ├──► /api/…       overview, one operation, both as event streams
//!                                                         ├──► /api/trees   the leader's trees, for the command line
//!                                                         └──► /metrics     Prometheus' text format
//! ```
//! `/api/trees`, its readers and the token are those of `plimsoll-progress-stream`.
//!
//! The cluster is watched only while there is a reader. Trees in memory are sampled all the time, for charts. Everything but the page
//! and `/healthz` needs the token.
//!
//! It must never change the cluster unless that is allowed, send text as markup, or hold up the work that it shows.

mod actions;
mod assets;
mod change_log;
mod dashboard;
mod dashboard_state;
mod error;
mod event_streams;
mod history;
pub mod metrics;
mod refresh;
mod routes;
mod rows;
mod sections;
mod volumes;

pub use dashboard::{Dashboard, DashboardSettings, RunningDashboard};
pub use error::Error;
pub use refresh::NextRun;
