//! Waiting for something that may come back, visibly.

use std::time::Duration;

use plimsoll_progress::Task;
use tokio::time::Instant;

use crate::Error;

/// How long, and under whose name, to go on trying.
#[derive(Clone, Debug)]
pub struct Patience {
    limit: Duration,
    first_pause: Duration,
    longest_pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            limit: Duration::from_mins(10),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
        }
    }
}

impl Patience {
    /// Gives up after `limit`.
    pub fn new(limit: Duration) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Calls `attempt` until it succeeds, fails for good, or patience ends. While it pauses, `task` waits, with the reason.
    ///
    /// # Cancel safety
    /// Dropping the future between two attempts loses nothing.
    pub async fn run<T, F, A>(&self, task: &Task, mut attempt: A) -> Result<T, Error>
    where
        A: FnMut() -> F,
        F: Future<Output = Result<T, Error>>,
    {
        let started = Instant::now();
        let mut pause = self.first_pause;
        loop {
            let error = match attempt().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if !error.is_retryable() || started.elapsed() + pause > self.limit {
                return Err(error);
            }
            task.hint(error.to_string());
            let waiting = task.wait(format!("trying again: {error}"));
            tokio::time::sleep(pause).await;
            drop(waiting);
            pause = (pause * 2).min(self.longest_pause);
        }
    }
}
