//! Requests to the API server from destructors.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, anyhow};

/// Runs a short request on its own thread and runtime: the runtime of the caller may be waiting for this drop.
pub fn run(request: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), request).await? })
    };
    std::thread::spawn(work).join().map_err(|_| anyhow!("the request panicked"))?
}
