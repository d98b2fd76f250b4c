//! The programs of others that our tests run beside: S3 servers, Velero; and our own, installed.

pub mod plimsoll_pods;
pub mod s3;
pub mod velero;
pub mod velero_pods;

pub use plimsoll_pods::PlimsollInPods;
pub use s3::{S3Program, S3Server};
pub use velero::Velero;
pub use velero_pods::VeleroInPods;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

/// A directory name below the cache that no other process of these tests uses.
pub(crate) fn own_directory(of: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    crate::cache::directory().join("run").join(format!("{of}-{}-{number}", std::process::id()))
}

/// A port that was free a moment ago.
fn free_port(address: &str) -> Result<u16> {
    Ok(std::net::TcpListener::bind((address, 0))?.local_addr()?.port())
}
