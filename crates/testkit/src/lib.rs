//! Test infrastructure: a real Kubernetes, other programs such as Velero, and fault injection.
//!
//! ```text
//! test ── cluster() ──► Cluster ── client, namespace, volume ──► API server ─┐
//!   │                      ├─ Machine ── kill, pause, partition, load image  ├─ one Enclosure: ends as a whole
//!   │                      └─ Csi ── volumes with snapshots                  │
//!   │                                                  kubelet, containerd ──┘
//!   ├── proxy::Proxy ──► API server or object store, with latency, errors, hangs, cut streams
//!   └── peers: S3 servers, velero   (child processes)
//! ```
//! `hack/install` puts every program into the cache. [`require!`] skips a test whose requirements are missing, with name
//! and reason, and fails it in CI.
//!
//! It must never leave anything behind: no process, mount, interface, control group or file survives the test process,
//! even if that is killed. It must never be linked into the product: it is a dev-dependency, and panics as a test does.

mod attributes;
pub mod cache;
pub mod child_process;
pub mod cluster;
pub mod csi;
pub mod enclosure;
pub mod image;
pub mod load;
pub mod measure;
pub mod memory;
pub mod namespace;
pub mod peers;
pub mod pod;
pub mod process;
pub mod proxy;
pub mod shape;
pub mod skip;
pub mod stopwatch;
pub mod volume;
pub mod wait;
pub mod webhook;

mod blocking;

pub use attributes::extended_attributes;
pub use cluster::{Cluster, Component, cluster};
pub use csi::Csi;
pub use image::Image;
pub use namespace::Namespace;
pub use pod::Pod;
pub use proxy::Proxy;
pub use shape::Shape;
pub use skip::Unavailable;
pub use stopwatch::Stopwatch;
pub use volume::Volume;
pub use webhook::Webhook;

/// Chooses the TLS implementation for this process. Calling it again does nothing.
pub fn install_crypto() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
