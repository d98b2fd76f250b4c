//! The objects of the snapshot API, `snapshot.storage.k8s.io/v1`: made once, awaited, and gone.

use std::time::Duration;

use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use super::call::Call;
use crate::Error;

/// The group of VolumeSnapshots.
pub const GROUP: &str = "snapshot.storage.k8s.io";

/// Names the phase that made an object, so that whoever takes the phase up again knows it as its own.
const PHASE: &str = "plimsoll.dev/phase";

/// How often a state is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Objects of one kind in one place.
pub struct Objects {
    api: Api<DynamicObject>,
    resource: ApiResource,
    place: String,
}

impl Objects {
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
        Self { api, resource, place: format!("{namespace}/") }
    }

    fn of_cluster(client: &Client, kind: &str) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind));
        Self { api: Api::all_with(client.clone(), &resource), resource, place: String::new() }
    }

    /// Kind, namespace and name, for people.
    pub fn path(&self, name: &str) -> String {
        format!("{} {}{name}", self.resource.kind, self.place)
    }

    fn error(&self, verb: &str, name: &str, error: kube::Error) -> Error {
        if let kube::Error::Api(status) = &error
            && status.code == 404
            && status.reason != "NotFound"
        {
            let api = &self.resource.api_version;
            return Error::Missing(format!("the cluster does not serve {api}: install the snapshot controller"));
        }
        Error::api(format!("{verb} {}", self.path(name)), error)
    }

    /// One that may be there.
    pub async fn find(&self, name: &str) -> Result<Option<DynamicObject>, Error> {
        self.api.get_opt(name).await.map_err(|error| self.error("read", name, error))
    }

    /// One that has to be there.
    pub async fn get(&self, name: &str) -> Result<DynamicObject, Error> {
        self.find(name).await?.ok_or_else(|| Error::Missing(format!("there is no {}", self.path(name))))
    }

    /// Creates one of this name, unless this very phase has made it before its server died.
    pub async fn create(&self, call: &Call, mut object: Value) -> Result<(), Error> {
        object["apiVersion"] = self.resource.api_version.clone().into();
        object["kind"] = self.resource.kind.clone().into();
        object["metadata"]["annotations"][PHASE] = call.identity.clone().into();
        let object: DynamicObject = serde_json::from_value(object).map_err(|error| Error::Host(error.to_string()))?;
        let name = object.name_any();
        call.host.effect()?;
        call.host.point("phase.snapshot.before");
        match self.api.create(&PostParams::default(), &object).await {
            Ok(_) => call.log(&format!("{} created", self.path(&name))),
            Err(error) if code(&error) == Some(409) && self.is_own(call, &name).await? => {}
            Err(error) => return Err(self.error("create", &name, error)),
        }
        call.host.point("phase.snapshot.after");
        Ok(())
    }

    /// Whether the name can be used: nobody else has it.
    pub async fn check_name(&self, call: &Call, argument: &str, name: &str) -> Result<(), Error> {
        match self.find(name).await? {
            Some(there) if there.annotations().get(PHASE) != Some(&call.identity) => {
                Err(Error::argument(argument, format!("{} already exists", self.path(name))))
            }
            _ => Ok(()),
        }
    }

    async fn is_own(&self, call: &Call, name: &str) -> Result<bool, Error> {
        let there = self.find(name).await?;
        Ok(there.is_some_and(|there| there.annotations().get(PHASE) == Some(&call.identity)))
    }

    /// Deletes one. It is well if it was not there.
    pub async fn delete(&self, call: &Call, name: &str) -> Result<(), Error> {
        call.host.effect()?;
        call.host.point("phase.snapshot.before");
        match self.api.delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 && status.reason == "NotFound" => {
                call.log(&format!("{} is not there any more", self.path(name)));
            }
            Err(error) => return Err(self.error("delete", name, error)),
        }
        call.host.point("phase.snapshot.after");
        Ok(())
    }

    /// Waits until one is gone.
    pub async fn until_gone(&self, call: &Call, name: &str) -> Result<(), Error> {
        let _waiting = call.task.wait(format!("waiting for {} to be gone", self.path(name)));
        loop {
            match self.find(name).await {
                Ok(None) => return Ok(()),
                Ok(Some(left)) => call.task.hint(format!("finalizers: {}", left.finalizers().join(", "))),
                Err(error) if error.is_retryable() => call.task.hint(error.to_string()),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until a VolumeSnapshot is ready, and returns its status. An error that will not pass is returned at once.
    pub async fn until_ready(&self, call: &Call, name: &str) -> Result<Value, Error> {
        let _waiting = call.task.wait(format!("waiting for {} to be ready", self.path(name)));
        loop {
            let seen = match self.get(name).await {
                Ok(object) => judge(&object.data["status"]),
                Err(error) if error.is_retryable() => Readiness::Waiting(error.to_string()),
                Err(error) => return Err(error),
            };
            match seen {
                Readiness::Ready(status) => return Ok(status),
                Readiness::Failed(detail) => return Err(Error::Snapshot { snapshot: self.path(name), detail }),
                Readiness::Waiting(hint) => call.task.hint(hint),
                // From here on the storage works, for as long as it takes, and says nothing.
                Readiness::Taken(hint) => {
                    call.task.quiet();
                    call.task.hint(hint);
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// How far a snapshot is.
#[derive(Debug, PartialEq)]
enum Readiness {
    Ready(Value),
    Taken(String),
    Waiting(String),
    Failed(String),
}

/// Errors stay in the status while the controller tries again, so what matters is whether another try can help.
fn judge(status: &Value) -> Readiness {
    let text = |field: &Value| field.as_str().map(str::to_owned);
    if status["readyToUse"] == true && status["boundVolumeSnapshotContentName"].is_string() {
        return Readiness::Ready(status.clone());
    }
    match text(&status["error"]["message"]) {
        Some(message) if passes(&message) => Readiness::Waiting(message),
        Some(message) => Readiness::Failed(message),
        None => match text(&status["boundVolumeSnapshotContentName"]) {
            Some(content) if status["creationTime"].is_string() => {
                Readiness::Taken(format!("{content} is taken and not ready yet"))
            }
            Some(content) => Readiness::Waiting(format!("{content} is being taken")),
            None => Readiness::Waiting("the snapshot controller has not taken it up yet".into()),
        },
    }
}

/// Two writers at once, or a driver that says by its code that the request may still succeed.
fn passes(message: &str) -> bool {
    const CODES: [&str; 5] = ["Canceled", "DeadlineExceeded", "Unavailable", "ResourceExhausted", "Aborted"];
    message.contains("the object has been modified")
        || CODES.iter().any(|code| message.contains(&format!("code = {code} ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_snapshot_is_ready_waited_for_or_beyond_hope_by_what_its_status_says() {
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
            assert!(matches!(judge(&status), Readiness::Waiting(_)), "{status}");
        }
        let taken = json!({ "readyToUse": false, "boundVolumeSnapshotContentName": "c", "creationTime": "2026-01-01T00:00:00Z" });
        assert!(matches!(judge(&taken), Readiness::Taken(_)));
        for message in ["rpc error: code = InvalidArgument desc = no", "snapshot class x not found"] {
            assert_eq!(judge(&failed(message)), Readiness::Failed(message.into()));
        }
        // An error of an earlier try stays.
        let ready = json!({ "readyToUse": true, "boundVolumeSnapshotContentName": "c", "error": { "message": "no" } });
        assert_eq!(judge(&ready), Readiness::Ready(ready.clone()));
    }
}
