//! Cancellation by the user.

use tokio_util::sync::CancellationToken;

use crate::Error;

/// Fails with [`Error::Cancelled`] as soon as `cancel` is cancelled, otherwise does the work.
pub(crate) async fn unless_cancelled<T>(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Error::Cancelled),
        answer = work => answer,
    }
}
