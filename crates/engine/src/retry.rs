//! Retries that are visible on a task.

use std::time::Duration;

use plimsoll_progress::Task;

use crate::Error;

/// Exponential back-off for the calls of an operation. While it pauses, a task shows the reason.
#[derive(Clone, Debug, Default)]
pub struct RetryPolicy(plimsoll_store::RetryPolicy);

impl RetryPolicy {
    /// The default pauses with another time limit.
    pub fn with_timeout(timeout: Duration) -> Self {
        Self(plimsoll_store::RetryPolicy::with_timeout(timeout))
    }

    /// Calls `attempt` until it succeeds, fails with an error that is not retryable, or the time is up. During a pause `task`
    /// waits, with the error as the reason.
    ///
    /// # Cancel safety
    /// Dropping the future between two attempts loses nothing.
    pub async fn run<T, F, A>(&self, task: &Task, attempt: A) -> Result<T, Error>
    where
        A: FnMut() -> F,
        F: Future<Output = Result<T, Error>>,
    {
        let show_wait = |error: &Error| {
            task.hint(error.to_string());
            task.wait(format!("trying again: {error}"))
        };
        self.0.run(Error::is_retryable, show_wait, attempt).await
    }
}
