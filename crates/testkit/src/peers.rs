//! Other programs that tests need: an S3 server, Velero, and Plimsoll installed in pods.

pub mod kopia;
pub mod plimsoll_pods;
pub mod s3;
pub mod velero;
pub mod velero_pods;

pub use kopia::KopiaServer;
pub use plimsoll_pods::PlimsollInPods;
pub use s3::S3Server;
pub use velero::Velero;
pub use velero_pods::VeleroInPods;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

/// A unique directory name below the cache.
pub(crate) fn unique_directory(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    crate::cache::directory().join("run").join(format!("{name}-{}-{number}", std::process::id()))
}

/// The first port of the range that [`free_port`] chooses from.
const FIRST_PORT: u16 = 10_000;

/// A free port below the range of outgoing connections, so that none of those takes it before the server does.
pub fn free_port(address: &str) -> Result<u16> {
    let is_free = |port: &u16| TcpListener::bind((address, *port)).is_ok();
    let candidates = std::iter::repeat_with(|| rand::random_range(FIRST_PORT..first_outgoing_port())).take(100);
    candidates.into_iter().find(is_free).with_context(|| format!("no port of {address} is free"))
}

fn first_outgoing_port() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok());
    first.filter(|first| *first > FIRST_PORT).unwrap_or(32_768)
}
