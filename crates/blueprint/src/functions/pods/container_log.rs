//! Reads the log of a container as it grows.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use super::{POLL_INTERVAL, PodHandle};
use crate::Error;
use crate::functions::call::Call;
use crate::functions::pod_io::PodOutput;
use crate::functions::pod_log::{LogPosition, read_chunks};

/// The log of one container and what has been read of it.
pub(super) struct ContainerLog<'a> {
    container: &'static str,
    position: LogPosition,
    pub(super) output: PodOutput<'a>,
}

impl<'a> ContainerLog<'a> {
    pub(super) fn new(call: &'a Call, container: &'static str) -> Self {
        Self { container, position: LogPosition::default(), output: PodOutput::new(call, container) }
    }

    /// Reads for ever.
    pub(super) async fn follow(&mut self, api: &Api<Pod>, handle: &PodHandle) {
        loop {
            let _ = self.read(api, handle).await;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Reads from the position to the current end.
    pub(super) async fn read(&mut self, api: &Api<Pod>, handle: &PodHandle) -> Result<(), Error> {
        // The container has not started yet, or the kubelet is unavailable: the caller reads the pod again.
        let Ok(stream) = api.log_stream(&handle.name, &self.position.log_params(self.container)).await else {
            return Ok(());
        };
        let mut lines = self.position.open();
        let output = &mut self.output;
        read_chunks(stream, |chunk| {
            let new_data = lines.push(chunk);
            if new_data.restarts_line {
                output.discard_partial_line();
            }
            output.push(&new_data.text)
        })
        .await
    }
}
