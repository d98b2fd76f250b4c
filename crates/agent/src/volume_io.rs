//! Calls on the file systems of volumes.
//!
//! A volume whose server is gone, a dead NFS mount for example, blocks every call for ever. Such a call has a thread of its own:
//! its transfer fails after a while, and the other transfers of the node do not notice.

use std::time::Duration;

use plimsoll_volumes::transfer::TransferError;
use tokio::sync::oneshot;

/// How long a call may take. Longer than a storage that fails over.
const VOLUME_TIMEOUT: Duration = Duration::from_mins(2);

/// Runs a call in a thread of its own. Not on the runtime's pool: its end would wait for a blocked thread.
pub(crate) async fn on_volume<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TransferError> {
    let (done, answer) = oneshot::channel();
    let spawned = std::thread::Builder::new().name("volume".into()).spawn(move || drop(done.send(call())));
    if let Err(error) = spawned {
        return Err(TransferError::VolumeBlocked { cause: format!("no thread for it: {error}") });
    }
    match tokio::time::timeout(VOLUME_TIMEOUT, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(_)) => Err(TransferError::VolumeBlocked { cause: "the call panicked".into() }),
        Err(_) => Err(TransferError::VolumeBlocked {
            cause: format!(
                "no answer within {} s; is the server of its file system reachable?",
                VOLUME_TIMEOUT.as_secs()
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_blocked_volume_does_not_keep_others_waiting() {
        let (release, blocked) = mpsc::channel::<()>();
        let stalled = on_volume(move || blocked.recv().is_ok());
        let other = on_volume(|| 7);
        let (stalled, other) = tokio::join!(stalled, async {
            let answer = other.await;
            release.send(()).unwrap();
            answer
        });
        assert_eq!((stalled.unwrap(), other.unwrap()), (true, 7), "on one thread of the runtime");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_fails_by_name() {
        let (_release, blocked) = mpsc::channel::<()>();
        let error = on_volume(move || blocked.recv().is_ok()).await.unwrap_err();
        assert_eq!(error.reason(), "VolumeBlocked");
        assert!(error.is_retryable() && error.to_string().contains("no answer within 120 s"), "{error}");
    }
}
