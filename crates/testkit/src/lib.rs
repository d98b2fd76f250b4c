//! What the tests stand on: a real Kubernetes, the real peers, and faults on request.
//!
//! ```text
//! test ── cluster() ──► Cluster ── client, namespace, volume ──► API server ─┐
//!   │                      ├─ Machine ── kill, pause, cut off, load image    ├─ one Enclosure: dies as a whole
//!   │                      └─ Csi ── volumes with snapshots                  │
//!   │                                                  kubelet, containerd ──┘
//!   ├── proxy::Proxy ──► API server or object store, with latency, errors, hangs, cut streams
//!   └── peers: S3 servers, velero   (plain processes, each with a keeper)
//! ```
//! Every program is one that `hack/install` put into the cache. A test that needs what is not there ends with
//! [`require!`]: skipped by name and reason, and failed in CI.
//!
//! It must never leave anything behind: no process, mount, interface, control group or file survives the test process, however
//! that ends. It must never be linked into the product: it is a dev-dependency, and panics where a test would.

pub mod cache;
pub mod cluster;
pub mod csi;
pub mod enclosure;
pub mod image;
pub mod keeper;
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
