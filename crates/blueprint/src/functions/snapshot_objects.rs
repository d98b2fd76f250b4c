//! The objects of the snapshot API, `snapshot.storage.k8s.io/v1`.

use std::time::Duration;

use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use super::call::Call;
use crate::Error;

/// The API group of VolumeSnapshots.
pub const GROUP: &str = "snapshot.storage.k8s.io";

/// Annotation: the phase that created an object, to recognize it when the phase is resumed.
const PHASE_ANNOTATION: &str = "plimsoll.dev/phase";

/// Interval of reads of an object.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The objects of one kind in one namespace or in the cluster.
pub struct SnapshotObjects {
    api: Api<DynamicObject>,
    resource: ApiResource,
    namespace_prefix: String,
}

impl SnapshotObjects {
    /// The VolumeSnapshots of a namespace.
    pub fn snapshots(client: &Client, namespace: &str) -> Self {
        Self::namespaced(client, GROUP, "VolumeSnapshot", namespace)
    }

    /// The claims of a namespace.
    pub fn claims(client: &Client, namespace: &str) -> Self {
        Self::namespaced(client, "", "PersistentVolumeClaim", namespace)
    }

    /// The VolumeSnapshotContents of the cluster.
    pub fn contents(client: &Client) -> Self {
        Self::of_cluster(client, "VolumeSnapshotContent")
    }

    /// The VolumeSnapshotClasses of the cluster.
    pub fn classes(client: &Client) -> Self {
        Self::of_cluster(client, "VolumeSnapshotClass")
    }

    fn namespaced(client: &Client, group: &str, kind: &str, namespace: &str) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api = Api::namespaced_with(client.clone(), namespace, &resource);
        Self { api, resource, namespace_prefix: format!("{namespace}/") }
    }

    fn of_cluster(client: &Client, kind: &str) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind));
        Self { api: Api::all_with(client.clone(), &resource), resource, namespace_prefix: String::new() }
    }

    /// Kind, namespace and name, for messages.
    pub fn path(&self, name: &str) -> String {
        format!("{} {}{name}", self.resource.kind, self.namespace_prefix)
    }

    fn error(&self, verb: &str, name: &str, error: kube::Error) -> Error {
        if let kube::Error::Api(status) = &error
            && status.code == 404
            && status.reason != "NotFound"
        {
            let api = &self.resource.api_version;
            return Error::Missing(format!("API {api} not found in the cluster: install the snapshot-controller"));
        }
        Error::api(format!("{verb} {}", self.path(name)), error)
    }

    /// Reads an object; `None` if it does not exist.
    pub async fn find(&self, name: &str) -> Result<Option<DynamicObject>, Error> {
        self.api.get_opt(name).await.map_err(|error| self.error("read", name, error))
    }

    /// Reads an object that must exist.
    pub async fn get(&self, name: &str) -> Result<DynamicObject, Error> {
        self.find(name).await?.ok_or_else(|| Error::Missing(format!("{} does not exist", self.path(name))))
    }

    /// Creates an object, unless this phase created it before its server stopped.
    pub async fn create(&self, call: &Call, mut object: Value) -> Result<(), Error> {
        object["apiVersion"] = self.resource.api_version.clone().into();
        object["kind"] = self.resource.kind.clone().into();
        object["metadata"]["annotations"][PHASE_ANNOTATION] = call.identity.clone().into();
        let object: DynamicObject = serde_json::from_value(object).map_err(|error| Error::Host(error.to_string()))?;
        let name = object.name_any();
        call.host.authorize_effect()?;
        call.host.kill_point("phase.snapshot.before");
        match self.api.create(&PostParams::default(), &object).await {
            Ok(_) => call.log(&format!("{} created", self.path(&name))),
            Err(error) if code(&error) == Some(409) && self.is_own(call, &name).await? => {}
            Err(error) => return Err(self.error("create", &name, error)),
        }
        call.host.kill_point("phase.snapshot.after");
        Ok(())
    }

    /// Checks that no other object has the name.
    pub async fn check_name(&self, call: &Call, argument: &str, name: &str) -> Result<(), Error> {
        match self.find(name).await? {
            Some(existing) if existing.annotations().get(PHASE_ANNOTATION) != Some(&call.identity) => {
                Err(Error::argument(argument, format!("{} already exists", self.path(name))))
            }
            _ => Ok(()),
        }
    }

    async fn is_own(&self, call: &Call, name: &str) -> Result<bool, Error> {
        let existing = self.find(name).await?;
        Ok(existing.is_some_and(|existing| existing.annotations().get(PHASE_ANNOTATION) == Some(&call.identity)))
    }

    /// Deletes an object; a missing object is not an error.
    pub async fn delete(&self, call: &Call, name: &str) -> Result<(), Error> {
        call.host.authorize_effect()?;
        call.host.kill_point("phase.snapshot.before");
        match self.api.delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 && status.reason == "NotFound" => {
                call.log(&format!("{} does not exist", self.path(name)));
            }
            Err(error) => return Err(self.error("delete", name, error)),
        }
        call.host.kill_point("phase.snapshot.after");
        Ok(())
    }

    /// Waits until an object is deleted.
    pub async fn wait_until_deleted(&self, call: &Call, name: &str) -> Result<(), Error> {
        let _waiting = call.task.wait(format!("waiting for the deletion of {}", self.path(name)));
        loop {
            match self.find(name).await {
                Ok(None) => return Ok(()),
                Ok(Some(left)) => call.task.hint(format!("finalizers: {}", left.finalizers().join(", "))),
                Err(error) if error.is_retryable() => call.task.hint(error.to_string()),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until a VolumeSnapshot is ready and returns its status. A permanent error is returned immediately.
    pub async fn wait_until_ready(&self, call: &Call, name: &str) -> Result<Value, Error> {
        // Any driver may be silent for as long as it takes, and then uploads without progress. The phase has a deadline.
        let _waiting = call.task.wait_quietly(format!("waiting for {} to be ready", self.path(name)), None);
        loop {
            let readiness = match self.get(name).await {
                Ok(object) => classify(&object.data["status"]),
                Err(error) if error.is_retryable() => Readiness::Waiting(error.to_string()),
                Err(error) => return Err(error),
            };
            match readiness {
                Readiness::Ready(status) => return Ok(status),
                Readiness::Failed(detail) => return Err(Error::Snapshot { snapshot: self.path(name), detail }),
                Readiness::Waiting(hint) => call.task.hint(hint),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The state of a snapshot.
#[derive(Debug, PartialEq)]
enum Readiness {
    Ready(Value),
    Waiting(String),
    Failed(String),
}

/// Errors stay in the status while the controller retries: only permanent errors are failures.
fn classify(status: &Value) -> Readiness {
    let text = |field: &Value| field.as_str().map(str::to_owned);
    if status["readyToUse"] == true && status["boundVolumeSnapshotContentName"].is_string() {
        return Readiness::Ready(status.clone());
    }
    match text(&status["error"]["message"]) {
        Some(message) if is_transient(&message) => Readiness::Waiting(message),
        Some(message) => Readiness::Failed(message),
        None => match text(&status["boundVolumeSnapshotContentName"]) {
            Some(content) if status["creationTime"].is_string() => {
                Readiness::Waiting(format!("{content} is created and not ready yet"))
            }
            Some(content) => Readiness::Waiting(format!("{content} is being created")),
            None => Readiness::Waiting("waiting for the snapshot-controller".into()),
        },
    }
}

/// Conflicting writes, or a gRPC code of the driver that allows a retry.
fn is_transient(message: &str) -> bool {
    const CODES: [&str; 5] = ["Canceled", "DeadlineExceeded", "Unavailable", "ResourceExhausted", "Aborted"];
    message.contains("the object has been modified")
        || CODES.iter().any(|code| message.contains(&format!("code = {code} ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_tells_ready_waiting_and_failed_snapshots_apart() {
        let failed = |message: &str| json!({ "error": { "message": message } });
        let waits = [
            Value::Null,
            json!({ "readyToUse": false, "boundVolumeSnapshotContentName": "c" }),
            json!({ "readyToUse": true }),
            failed("rpc error: code = Unavailable desc = busy"),
            failed("rpc error: code = Aborted desc = there is one already"),
            failed("Operation cannot be fulfilled: the object has been modified; please apply your changes"),
        ];
        for status in waits {
            assert!(matches!(classify(&status), Readiness::Waiting(_)), "{status}");
        }
        let taken = json!({ "readyToUse": false, "boundVolumeSnapshotContentName": "c", "creationTime": "2026-01-01T00:00:00Z" });
        assert!(matches!(classify(&taken), Readiness::Waiting(_)));
        for message in ["rpc error: code = InvalidArgument desc = no", "snapshot class x not found"] {
            assert_eq!(classify(&failed(message)), Readiness::Failed(message.into()));
        }
        // An error of an earlier attempt stays in the status.
        let ready = json!({ "readyToUse": true, "boundVolumeSnapshotContentName": "c", "error": { "message": "no" } });
        assert_eq!(classify(&ready), Readiness::Ready(ready.clone()));
    }
}
