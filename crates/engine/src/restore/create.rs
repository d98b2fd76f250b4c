//! Last step of an item: creates the object or handles the existing one, then restores status and field ownership.

use plimsoll_progress::Task;
use serde_json::{Value, json};

use super::api_requests::outcome_of;
use super::existing_object::{
    ExistingObject, ExistingPolicy, compare_existing, restore_labels_patch, service_account_patch, update_patch,
};
use super::field_ownership::FieldOwnership;
use super::run::{POLL_INTERVAL, RestoreRun, failed};
use crate::outcome::{ItemOutcome, ItemRef, Scope};
use crate::{Error, kill};

const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// An object, ready to be created.
pub(super) struct PreparedObject {
    /// URL path of the collection.
    pub(super) collection: String,
    /// URL path of the object.
    pub(super) path: String,
    pub(super) object: Value,
    /// The object of the backup in its target namespace, before actions changed it.
    pub(super) original: Value,
    /// The status to restore.
    pub(super) status: Option<Value>,
    pub(super) ownership: FieldOwnership,
}

impl RestoreRun {
    pub(super) async fn create(
        &self,
        resource: &str,
        prepared: &PreparedObject,
        item: &ItemRef,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        let body = prepared.object.to_string().into_bytes();
        loop {
            self.guard.check_effect()?;
            kill::point("restore.create.before");
            let create = || self.cluster.create(&prepared.collection, &prepared.ownership.manager, body.clone());
            let answer = self.send(task, create).await;
            kill::point("restore.create.after");
            let rejection = match answer {
                Ok(created) => return self.finish_created(resource, prepared, &created, item, task).await,
                Err(error) => error,
            };
            if !already_exists(&rejection, &prepared.object) {
                return outcome_of(rejection);
            }
            match self.read_existing(&prepared.path, task).await? {
                LiveObject::Absent if rejection.code() == Some(409) => {}
                LiveObject::Absent => return outcome_of(rejection),
                LiveObject::Present(existing) => {
                    return self.handle_existing(resource, prepared, existing, item, task).await;
                }
                LiveObject::Terminating(message) => return Ok(failed("BeingDeleted", message)),
                LiveObject::Unreadable(error) => return outcome_of(error),
            }
        }
    }

    /// Reads an existing object. Waits while it is being deleted.
    async fn read_existing(&self, path: &str, task: &Task) -> Result<LiveObject, Error> {
        let limit = self.rules.timeouts.terminating;
        let started = tokio::time::Instant::now();
        let mut waiting = None;
        loop {
            let found = match self.send(task, || self.cluster.get(path)).await {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(LiveObject::Absent),
                Err(error @ Error::Api { .. }) => return Ok(LiveObject::Unreadable(error)),
                Err(error) => return Err(error),
            };
            let existing: Value = serde_json::from_slice(&found).unwrap_or_default();
            if existing.pointer("/metadata/deletionTimestamp").is_none() {
                return Ok(LiveObject::Present(existing));
            }
            if started.elapsed() >= limit {
                let finalizers = existing.pointer("/metadata/finalizers").map(Value::to_string).unwrap_or_default();
                return Ok(LiveObject::Terminating(format!(
                    "still being deleted after {limit:?}; finalizers: {finalizers}"
                )));
            }
            waiting.get_or_insert_with(|| task.wait(format!("waiting for the deletion of {path}")));
            tokio::time::sleep(POLL_INTERVAL.min(limit)).await;
        }
    }

    /// Handles an object that exists already.
    async fn handle_existing(
        &self,
        resource: &str,
        prepared: &PreparedObject,
        existing: Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        let updates = self.rules.existing == ExistingPolicy::Update;
        match compare_existing(&existing, &prepared.object, &prepared.original, &self.origin) {
            ExistingObject::CreatedByRestore => {
                self.finish_created(resource, prepared, existing.to_string().as_bytes(), item, task).await
            }
            ExistingObject::Equal => {
                if updates {
                    self.patch_existing(prepared, &restore_labels_patch(&prepared.object), item, task).await?;
                }
                Ok(ItemOutcome::Skipped { reason: "AlreadyExists" })
            }
            ExistingObject::Different if resource == "serviceaccounts" => {
                match service_account_patch(&existing, &prepared.object) {
                    None => Ok(ItemOutcome::Skipped { reason: "AlreadyExists" }),
                    Some(patch) => self.update_existing(prepared, &patch, item, task).await,
                }
            }
            ExistingObject::Different if updates => match update_patch(&existing, &prepared.object, &prepared.original)
            {
                None => Ok(ItemOutcome::Skipped { reason: "AlreadyExists" }),
                Some(patch) => self.update_existing(prepared, &patch, item, task).await,
            },
            ExistingObject::Different => {
                let (kind, path) = (&item.kind, item.path());
                let text = format!("{kind} {path} already exists and differs from the backup; not changed");
                self.recorder.warn(&Scope::of(item), text);
                Ok(ItemOutcome::Skipped { reason: "AlreadyExistsAndDiffers" })
            }
        }
    }

    /// Updates the existing object. If that is rejected and the policy is `update`, sets at least the labels of the restore.
    async fn update_existing(
        &self,
        prepared: &PreparedObject,
        patch: &Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        if self.patch_existing(prepared, patch, item, task).await? {
            return Ok(ItemOutcome::Updated);
        }
        if self.rules.existing == ExistingPolicy::Update {
            self.patch_existing(prepared, &restore_labels_patch(&prepared.object), item, task).await?;
        }
        Ok(ItemOutcome::Skipped { reason: "AlreadyExistsUpdateRejected" })
    }

    /// Applies a merge patch; a rejection is a warning. Returns whether it was applied.
    async fn patch_existing(
        &self,
        prepared: &PreparedObject,
        patch: &Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<bool, Error> {
        self.guard.check_effect()?;
        let body = patch.to_string().into_bytes();
        kill::point("restore.change.before");
        let answer = self.send(task, || self.cluster.merge(&prepared.path, body.clone())).await;
        kill::point("restore.change.after");
        self.warn_if_rejected(answer, "update rejected", item)
    }

    /// Returns whether a request succeeded; a rejection is a warning.
    fn warn_if_rejected<T>(&self, answer: Result<T, Error>, what: &str, item: &ItemRef) -> Result<bool, Error> {
        match answer {
            Ok(_) => Ok(true),
            Err(error @ (Error::Api { .. } | Error::Webhook { .. })) => {
                self.recorder.warn(&Scope::of(item), format!("{} {} {what}: {error}", item.kind, item.path()));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Restores status and field ownership, which a create cannot set. Idempotent.
    async fn finish_created(
        &self,
        resource: &str,
        prepared: &PreparedObject,
        created: &[u8],
        item: &ItemRef,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        if let Some(status) = &prepared.status {
            self.restore_status(prepared, status, item, task).await?;
        }
        if let Some(patch) = prepared.ownership.patch() {
            self.guard.check_effect()?;
            let body = patch.to_string().into_bytes();
            kill::point("restore.owners.before");
            let answer = self.send(task, || self.cluster.merge(&prepared.path, body.clone())).await;
            kill::point("restore.owners.after");
            self.warn_if_rejected(answer, "restored without field ownership", item)?;
        }
        if resource == "pods"
            && let Ok(pod) = serde_json::from_slice::<Value>(created)
        {
            if let Some(data) = &self.rules.data {
                data.start_pod(&pod);
            }
            self.rules.hooks.start_pod(&pod, &self.recorder);
        }
        if resource == CRDS {
            return self.wait_until_established(prepared, item, task).await;
        }
        Ok(ItemOutcome::Created)
    }

    async fn restore_status(
        &self,
        prepared: &PreparedObject,
        status: &Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<(), Error> {
        self.guard.check_effect()?;
        let body = json!({ "status": status }).to_string().into_bytes();
        let status_path = format!("{}/status", prepared.path);
        kill::point("restore.status.before");
        let mut answer = self.send(task, || self.cluster.merge(&status_path, body.clone())).await;
        // Without a status subresource the status is a regular field.
        if answer.as_ref().is_err_and(|error| error.code() == Some(404)) {
            answer = self.send(task, || self.cluster.merge(&prepared.path, body.clone())).await;
        }
        kill::point("restore.status.after");
        self.warn_if_rejected(answer, "restored without status", item).map(|_| ())
    }

    /// Waits until the API server has established a CustomResourceDefinition and serves it.
    async fn wait_until_established(
        &self,
        prepared: &PreparedObject,
        item: &ItemRef,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        let limit = self.rules.timeouts.resource;
        let started = tokio::time::Instant::now();
        let mut waiting = None;
        loop {
            let found = match self.send(task, || self.cluster.get(&prepared.path)).await {
                Err(error) => return outcome_of(error),
                Ok(found) => found,
            };
            let crd: Value = found.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
            if condition(&crd, "Established", "True").is_some() && self.is_served(&crd, task).await {
                return Ok(ItemOutcome::Created);
            }
            if started.elapsed() >= limit {
                let cause = condition(&crd, "NamesAccepted", "False").map(|cause| format!(": {cause}"));
                let text = format!("not established after {limit:?}{}", cause.unwrap_or_default());
                return Ok(failed("NotEstablished", text));
            }
            waiting.get_or_insert_with(|| {
                task.wait(format!("waiting for CustomResourceDefinition {} to be established", item.name))
            });
            tokio::time::sleep(POLL_INTERVAL.min(limit)).await;
        }
    }

    /// A CustomResourceDefinition is served a moment after it is established.
    async fn is_served(&self, crd: &Value, task: &Task) -> bool {
        let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
        let served = versions.into_iter().flatten().find(|version| version["served"] == true);
        let Some(version) = served.and_then(|version| version["name"].as_str()) else { return true };
        let path = format!("/apis/{}/{version}/{}?limit=1", text("/spec/group"), text("/spec/names/plural"));
        match self.send(task, || self.cluster.get(&path)).await {
            Ok(found) => found.is_some(),
            // A served resource may be forbidden.
            Err(error) => error.code() == Some(403),
        }
    }
}

enum LiveObject {
    Absent,
    Present(Value),
    Terminating(String),
    Unreadable(Error),
}

/// The message of a condition that has this status.
fn condition<'a>(crd: &'a Value, kind: &str, status: &str) -> Option<&'a str> {
    let conditions = crd.pointer("/status/conditions").and_then(Value::as_array)?;
    let found = conditions.iter().find(|condition| condition["type"] == kind && condition["status"] == status)?;
    Some(found["message"].as_str().unwrap_or_default())
}

/// Whether an error means that the object exists. For a Service, allocated node ports may be its own.
fn already_exists(error: &Error, object: &Value) -> bool {
    let Some(status) = error.status() else { return false };
    if status.code == 409 {
        return status.reason != "Conflict";
    }
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    let allocated = |message: &str| message.contains("provided port is already allocated");
    object["kind"] == "Service" && !causes.is_empty() && causes.iter().all(|cause| allocated(&cause.message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use kube::core::response::{StatusCause, StatusDetails};

    fn rejection(code: u16, reason: &str, causes: &[&str]) -> Error {
        let cause = |message: &&str| StatusCause {
            reason: String::new(),
            message: (*message).to_owned(),
            field: String::new(),
        };
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: causes.iter().map(cause).collect(),
            retry_after_seconds: 0,
        };
        let status = Status { code, reason: reason.to_owned(), details: Some(details), ..Status::default() };
        Error::api("create", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn conflicts_and_allocated_node_ports_mean_that_the_object_exists() {
        let (service, pod) = (json!({"kind": "Service"}), json!({"kind": "Pod"}));
        let port = "Invalid value: 30080: provided port is already allocated";
        for (error, object, existing) in [
            (rejection(409, "AlreadyExists", &[]), &pod, true),
            (rejection(409, "Conflict", &[]), &pod, false),
            (rejection(422, "Invalid", &[port]), &service, true),
            (rejection(422, "Invalid", &[port, "Invalid value: x"]), &service, false),
            (rejection(422, "Invalid", &[port]), &pod, false),
            (rejection(422, "Invalid", &[]), &service, false),
        ] {
            assert_eq!(already_exists(&error, object), existing, "{error}");
        }
    }
}
