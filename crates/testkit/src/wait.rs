//! Waits for conditions, with a deadline and a description for the error.

use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long a test waits for an expected state. Only a failing test waits this long; a busy machine is slow.
pub const WAIT_TIMEOUT: Duration = Duration::from_mins(3);

/// Calls `probe` until it returns a value. Fails after `limit`, naming `what` and the last error of the probe.
pub async fn until<T, E, F, Fut>(what: impl Display, limit: Duration, mut probe: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>, E>>,
    E: Display,
{
    let deadline = Instant::now() + limit;
    loop {
        let last = match probe().await {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => String::from("not yet"),
            Err(error) => error.to_string(),
        };
        if Instant::now() >= deadline {
            bail!("waited {limit:?} in vain for {what}: {last}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The same for callers that have no async runtime.
pub fn until_blocking<T>(what: impl Display, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = probe() {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            bail!("waited {limit:?} in vain for {what}");
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
