//! Waits for the start and for the end of a pod.

use std::time::Duration;

use futures::FutureExt;
use futures::future::{join_all, try_join};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::time::Instant;

use super::container_log::ContainerLog;
use super::status::{failure_detail, has_completed, pending_reason};
use super::{POLL_INTERVAL, PodHandle, Started};
use crate::Error;
use crate::functions::call::Call;
use crate::functions::tools_container;
use crate::results::Outputs;

impl Call {
    /// Waits for the start of a pod.
    pub(super) async fn wait_until_started(&self, handle: &PodHandle) -> Result<Started, Error> {
        let api = self.pods_of(&handle.namespace);
        let limit = self.pod_settings.environment.pod_start_timeout;
        let deadline = Instant::now() + limit;
        let mut waiting: Option<(String, plimsoll_progress::Wait)> = None;
        loop {
            let pod = self.read_until_answered(&api, handle).await?;
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            if let Some(cause) = tools_container::failure(&pod) {
                return Ok(Started::WithoutTools(cause));
            }
            if !phase.is_empty() && phase != "Pending" {
                return Ok(Started::Running);
            }
            let reason = format!("waiting for pod {} to start: {}", handle.path(), pending_reason(&pod));
            if waiting.as_ref().is_none_or(|(known, _)| *known != reason) {
                self.task.hint(&reason);
                // The old wait ends first: otherwise both would be shown briefly.
                drop(waiting.take());
                waiting = Some((reason.clone(), self.task.wait(&reason)));
            }
            if Instant::now() >= deadline {
                return Err(handle.failed(format!("did not start within {limit:?}: {}", pending_reason(&pod))));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Reads a pod; retries while the API server is unavailable.
    pub(super) async fn read_until_answered(&self, api: &Api<Pod>, handle: &PodHandle) -> Result<Pod, Error> {
        let mut pause = POLL_INTERVAL;
        loop {
            match self.get_pod(api, handle).await {
                Ok(Some(pod)) => return Ok(pod),
                Ok(None) => return Err(handle.failed("was deleted while the phase was running")),
                Err(error) if error.is_retryable() && pause < Duration::from_mins(2) => {
                    let _waiting = self.task.wait(format!("retrying: {error}"));
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the logs of containers until the pod has completed. The first one has the outputs; progress is read from all.
    /// A failed pod is an error if `must_succeed`.
    pub async fn wait_for_completion(
        &self,
        handle: &PodHandle,
        containers: &[&'static str],
        must_succeed: bool,
    ) -> Result<Outputs, Error> {
        let api = self.pods_of(&handle.namespace);
        let mut logs: Vec<_> = containers.iter().map(|container| ContainerLog::new(self, container)).collect();
        let pod = loop {
            let before = self.read_until_answered(&api, handle).await?;
            if let Some((first, rest)) = logs.split_first_mut() {
                // An invalid output of the others is not an error: they have none.
                let rest = join_all(rest.iter_mut().map(|log| log.read(&api, handle)));
                try_join(first.read(&api, handle), rest.map(Ok)).await?;
            }
            // The log is complete only if it was opened after the pod completed.
            if has_completed(&before) {
                break before;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        if must_succeed && let Some(detail) = failure_detail(&pod) {
            let tail = logs.iter().map(|log| log.output.output_tail()).find(|tail| !tail.is_empty());
            let tail = tail.map(|tail| format!(": {tail}")).unwrap_or_default();
            return Err(handle.failed(format!("{detail}{tail}")));
        }
        match logs.into_iter().next() {
            Some(log) => log.output.finish(),
            None => Ok(Outputs::new()),
        }
    }
}
