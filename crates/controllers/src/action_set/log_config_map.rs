//! The end of the log of an ActionSet, in a ConfigMap that the ActionSet owns.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use plimsoll_engine::log;
use plimsoll_engine::ports::LeadershipGuard;
use plimsoll_operations::Job;
use tracing::debug;

use super::ActionSetController;

/// Maximum number of bytes of the log that are kept.
const MAX_LOG_BYTES: u64 = 256 << 10;

/// Writes the end of the log. Best effort.
pub async fn write(job: &Job<ActionSetController>) {
    let Some(tail) = log::tail(job.scratch.path(), MAX_LOG_BYTES) else { return };
    if job.record.check_effect().is_err() {
        return;
    }
    let name = format!("{}-log", job.id.operation_name());
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            owner_references: Some(vec![job.id.owner()]),
            ..ObjectMeta::default()
        },
        data: Some([("log".to_owned(), tail.text), ("offset".to_owned(), tail.offset.to_string())].into()),
        ..ConfigMap::default()
    };
    let api: Api<ConfigMap> = Api::namespaced(job.context.leader.client.clone(), &job.id.namespace);
    let answer = match api.create(&PostParams::default(), &map).await {
        // An earlier process wrote it before it stopped.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&map)).await
        }
        answer => answer,
    };
    if let Err(error) = answer {
        debug!("log of {}: {error}", job.id.name);
    }
}
