//! Waiting for conditions, with a deadline and a name for what did not happen.

use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const INTERVAL: Duration = Duration::from_millis(50);

/// How long a test waits for what must come. Only a test that fails waits for so long, and a busy machine takes its time.
pub const WAIT_TIMEOUT: Duration = Duration::from_mins(3);

/// Asks until there is an answer. Fails, naming `what` and the last word of the probe, once `limit` has passed.
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
        tokio::time::sleep(INTERVAL).await;
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
        std::thread::sleep(INTERVAL);
    }
}
