//! For the authors of plugins in Rust: the other side of the protocol.
//!
//! ```text
//!  main ──▶ Plugin::new().offer(kind, name).on(METHOD, handler)… ──▶ serve: handshake on stdout, gRPC on a unix socket
//! ```
//!
//! A plugin made with this runs under Velero as well. `examples/directory-snapshotter.rs` is one to copy.

mod log;
mod serve;
mod snapshotter;

pub use log::log;
pub use serve::{Plugin, Stopped};
pub use snapshotter::{Begun, VolumeSnapshotter};
pub use tonic::Status;
