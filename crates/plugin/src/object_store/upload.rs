//! The upload of one object.

use std::fmt;

use async_trait::async_trait;
use object_store::{MultipartUpload, PutPayload, PutResult, UploadPart};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::StoreResult;
use crate::Result;

/// An upload in one call. The object is not visible unless the call succeeds.
pub(super) struct StreamingUpload {
    pub parts: Option<mpsc::UnboundedSender<(PutPayload, oneshot::Sender<()>)>>,
    pub upload: Option<JoinHandle<Result<()>>>,
}

impl fmt::Debug for StreamingUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamingUpload").finish_non_exhaustive()
    }
}

fn upload_interrupted() -> object_store::Error {
    object_store::Error::Generic { store: "plugin", source: "the upload was interrupted".into() }
}

#[async_trait]
impl MultipartUpload for StreamingUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (received, is_received) = oneshot::channel();
        // Sent here and not in the future, so that parts keep their order.
        let sent = self.parts.as_ref().is_some_and(|parts| parts.send((data, received)).is_ok());
        Box::pin(async move {
            // The error of an interrupted upload is returned by `complete`.
            if sent {
                let _ = is_received.await;
            }
            Ok(())
        })
    }

    async fn complete(&mut self) -> StoreResult<PutResult> {
        self.parts = None;
        let Some(upload) = self.upload.take() else { return Err(upload_interrupted()) };
        upload.await.map_err(|_| upload_interrupted())??;
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn abort(&mut self) -> StoreResult<()> {
        self.stop();
        Ok(())
    }
}

impl StreamingUpload {
    /// Aborts the call before the end of the body, which the plugin sees as a failure.
    fn stop(&mut self) {
        if let Some(upload) = self.upload.take() {
            upload.abort();
        }
        self.parts = None;
    }
}

impl Drop for StreamingUpload {
    fn drop(&mut self) {
        self.stop();
    }
}
