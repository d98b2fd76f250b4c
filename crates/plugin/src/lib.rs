//! Velero's plugins: unmodified binaries, supervised, behind the engine's ports.
//!
//! ```text
//!  /plugins/* ──discover──▶ Catalog ──session──▶ Session ──call──▶ plugin process (gRPC on a unix socket)
//!                                                  │                  │
//!                     restart, health, deadlines ──┘                  └─ log lines ─▶ LogSink, with their level
//! ```
//!
//! What a caller may rely on:
//! - A call ends: with an answer, with the plugin's own refusal, or with an error that names the plugin and what became of it.
//! - A plugin that died or no longer answers its health check is replaced by a new process at the next call, a bounded number
//!   of times. Silence alone is nothing bad.
//! - Whatever text a plugin sends is bounded and free of control characters before anybody sees it.
//!
//! What it must never do: hand a plugin more of this process's environment than plugins need, wait for one without a limit, or
//! repeat a call that may have had an effect.

mod actions;
pub mod author;
mod catalog;
mod channel;
mod environment;
mod error;
mod handshake;
mod launch;
mod logs;
mod objects;
mod ports;
mod process;
mod progress;
mod session;
mod snapshotter;
mod sweep;
mod text;
pub mod wire;

pub use actions::{
    Action, BackupAction, BackupAnswer, BlockAction, DeleteAction, PluginActions, RestoreAction, RestoreAnswer,
};
pub use catalog::{Catalog, Kind, Offer, qualified_name};
pub use environment::Environment;
pub use error::{Error, Result};
pub use launch::{Launch, Supervision};
pub use logs::{Gravity, LogLine, LogSink, Tracing};
pub use objects::{ASKS_FOR_PLUGIN, open_store};
pub use ports::OperationLines;
pub use progress::{Fault, Reading, Watch};
pub use session::{Observing, Session};
pub use snapshotter::{Snapshotter, Subject, VolumeFacts};
pub use sweep::sweep;
pub use text::clean;
