//! The handshake with the pod of a restore: its wait container runs before data is written, and ends after.

use std::path::Path;

use plimsoll_api::labels;
use plimsoll_engine::kill;
use plimsoll_mover::Outcome;
use plimsoll_volumes::transfer::restore_wait::{cannot_wait, has_gone_on, has_waited};
use plimsoll_volumes::transfer::{RESTORE_WAIT, Transfer, TransferError};
use serde_json::json;

use super::{POLL_INTERVAL, Run, path_of};
use crate::restore_marker::{self, RestoreMarker};

impl<T: Transfer> Run<'_, T> {
    /// Waits until the wait container of the pod runs. Data is written only while it runs: before, the volume may not be mounted,
    /// and after, the application uses it. A transfer that is resumed may find the pod in any of these states.
    pub(super) async fn wait_for_wait_container(&self) -> Result<(), TransferError> {
        if self.object.waiting_restore()?.is_none() {
            return Ok(());
        }
        let path = path_of(&self.object.pod());
        let mut waiting = None;
        loop {
            let pod = self.unless_cancelled(self.pod()).await??;
            if T::is_pod_ready(&pod) {
                return Ok(());
            }
            if has_gone_on(&pod) {
                return Err(TransferError::NotWaiting { pod: path });
            }
            let why = cannot_wait(&pod).map(|why| format!(": {why}")).unwrap_or_default();
            let words = format!("waiting for container {RESTORE_WAIT} of pod {path} to run{why}");
            waiting.get_or_insert_with(|| self.root.wait(words.clone())).reword(words);
            self.unless_cancelled(tokio::time::sleep(POLL_INTERVAL)).await?;
        }
    }

    /// Records that the data has been moved, and signals the pod.
    pub(super) async fn confirm_moved(&self, directory: &Path, outcome: Outcome) -> Result<Outcome, TransferError> {
        let Some(restore) = self.object.waiting_restore()? else { return Ok(outcome) };
        kill::point("transfer.moved.before");
        let moved = json!({ "metadata": { "annotations": { labels::DATA_MOVEMENT_RESULT: restore_marker::serialize_outcome(&outcome) } } });
        self.record.change(&self.root, |_| moved.clone()).await?.ok_or(TransferError::Cancelled)?;
        kill::point("transfer.settle.before");
        RestoreMarker::new(directory, restore).create().await?.map_err(|error| self.marker_error(&error))?;
        kill::point("transfer.settle.after");
        Ok(outcome)
    }

    /// Waits until the wait container can see the marker: it may have crashed since the transfer began. The server decides how
    /// long that may last.
    pub(super) async fn wait_until_marker_seen(&self) -> Result<(), TransferError> {
        let mut waiting = None;
        loop {
            let words = match self.unless_cancelled(self.pod()).await? {
                Ok(pod) => cannot_wait(&pod).map(|why| format!("waiting for container {RESTORE_WAIT} to start: {why}")),
                // It was deleted before it could see the marker.
                Err(error @ TransferError::PodGone { .. }) if waiting.is_some() => return Err(error),
                Err(TransferError::PodGone { .. }) => None,
                Err(error) => Some(format!("waiting for the API server to return its pod: {error}")),
            };
            let Some(words) = words else { return Ok(()) };
            waiting.get_or_insert_with(|| self.root.wait(words.clone())).reword(words);
            self.unless_cancelled(tokio::time::sleep(POLL_INTERVAL)).await?;
        }
    }

    /// Signals a pod whose data was moved by an earlier agent, which may have signalled it without a record of that. A pod that was
    /// signalled removes the marker, or its wait container has ended.
    pub(super) async fn resume_release(&self, outcome: Outcome) -> Result<Outcome, TransferError> {
        let Some(restore) = self.object.waiting_restore()? else { return Ok(outcome) };
        let pod = self.pod().await?;
        if has_waited(&pod) {
            return Ok(outcome);
        }
        let directory = self.directory(&pod).await?;
        let marker = RestoreMarker::new(&directory, restore);
        if marker.exists().await? {
            self.wait_until_marker_seen().await?;
            return Ok(outcome);
        }
        marker.create().await?.map_err(|error| self.marker_error(&error))?;
        let _waiting = self.root.wait_in_queue("waiting for the pod to see that its data is restored");
        let created = tokio::time::Instant::now();
        while marker.exists().await? && created.elapsed() < restore_marker::RELEASE_TIMEOUT {
            let waited = match self.pod().await {
                Ok(pod) => has_waited(&pod),
                Err(TransferError::PodGone { .. }) => true,
                Err(error) => return Err(error),
            };
            if waited {
                marker.remove().await?.map_err(|error| self.marker_error(&error))?;
            } else {
                self.unless_cancelled(tokio::time::sleep(POLL_INTERVAL)).await?;
            }
        }
        if marker.exists().await? {
            self.wait_until_marker_seen().await?;
        }
        Ok(outcome)
    }

    fn marker_error(&self, error: &std::io::Error) -> TransferError {
        let (volume, cause) = (self.object.volume().to_owned(), error.to_string());
        TransferError::Handshake { volume, pod: path_of(&self.object.pod()), cause }
    }
}
