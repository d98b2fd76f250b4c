//! Waits until restored pods have seen that their data is there.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt};
use plimsoll_engine::{Error, RetryPolicy};
use plimsoll_progress::Task;
use serde_json::Value;
use tokio::time::Instant;

use crate::transfer::RESTORE_WAIT;
use crate::transfer::restore_wait::{cannot_wait, has_gone_on};

/// How often a pod is read.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A pod that a restore created.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RestoredPod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl RestoredPod {
    pub fn of(pod: &Value) -> Self {
        let text = |place: &str| pod.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { namespace: text("/metadata/namespace"), name: text("/metadata/name"), uid: text("/metadata/uid") }
    }

    /// Waits until the pod is released or gone. Returns the obstacle if that takes longer than `limit`. The data is not restored
    /// again: the application may start at any moment.
    pub async fn wait_until_released(
        &self,
        client: &Client,
        task: &Task,
        limit: Duration,
    ) -> Result<Option<String>, Error> {
        let path = format!("{}/{}", self.namespace, self.name);
        let task = task.child(format!("{path}/{RESTORE_WAIT}"));
        let words = format!("waiting for container {RESTORE_WAIT} of pod {path} to see that its data is restored");
        let waiting = task.wait(words.clone());
        let begun = Instant::now();
        let mut why = "it still waits".to_owned();
        loop {
            let Some(pod) = self.read(client, &task).await?.filter(|pod| !has_gone_on(pod)) else {
                drop(waiting);
                task.finish();
                return Ok(None);
            };
            // A container that fails is restarted and waits again. The reason of its failure still counts.
            why = cannot_wait(&pod).unwrap_or(why);
            if begun.elapsed() >= limit {
                let stuck = format!("pod {path} has its data, but its container {RESTORE_WAIT} does not go on: {why}");
                task.fail(&stuck);
                return Ok(Some(stuck));
            }
            waiting.reword(format!("{words}: {why}"));
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// The current pod; `None` if it is gone, or another one has its name.
    async fn read(&self, client: &Client, task: &Task) -> Result<Option<Pod>, Error> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let path = || format!("read pod {}/{}", self.namespace, self.name);
        let read = || async { pods.get_opt(&self.name).await.map_err(|error| Error::api(path(), error)) };
        let found = RetryPolicy::default().run(task, read).await?;
        Ok(found.filter(|pod| pod.uid().as_deref() == Some(&self.uid)))
    }
}
