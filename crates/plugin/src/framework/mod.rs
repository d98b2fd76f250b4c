//! Framework for plugins in Rust: the server side of the protocol.
//!
//! ```text
//!  main ──▶ Plugin::new().register(kind, name).handle(METHOD, handler)… ──▶ serve: handshake on stdout, gRPC on a unix socket
//! ```
//!
//! Such a plugin runs under Velero too. `examples/directory-snapshotter.rs` is a template.

mod log;
mod serve;
mod volume_snapshotter;

pub use log::log;
pub use serve::{Plugin, ServeError};
pub use tonic::Status;
pub use volume_snapshotter::{SnapshotRequest, VolumeSnapshotter};
