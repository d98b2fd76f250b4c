//! What a browser and a metrics collector see: the dashboard, its live stream, and the numbers.
//!
//! ```text
//!   observe::Live ── a world a second ──► Overview ──► Board (rows, trails, tally; what changed since when)
//!   progress::Trees (the leader's memory) ──┘             │
//!                                                         ├──► /            the page: three plain files inside the binary
//!                                                         ├──► /api/…       overview, one operation, both as event streams
//!                                                         ├──► /api/trees   the leader's trees, for the command line
//!                                                         └──► /metrics     Prometheus' text format
//! ```
//! `/api/trees`, its readers and the token are those of `plimsoll-progress-stream`.
//!
//! Nobody looks, nothing is watched: the cluster is read only while somebody asks; what is in memory is noted all the time, for charts. Everything but the page and `/healthz` is behind a
//! token. It must never change the cluster unless it was allowed to, send text as markup, or hold up the work it shows.

mod actions;
mod board;
mod error;
mod events;
mod feed;
mod listen;
pub mod metrics;
mod model;
mod page;
mod routes;
mod sections;
mod shelf;
mod trail;
mod volumes;

pub use error::Error;
pub use feed::Due;
pub use listen::{Dashboard, Listening, Settings};
