//! The last step of an item: it is created, or met where it is; then what a create cannot say is written.

use plimsoll_progress::Task;
use serde_json::{Value, json};

use super::existing::{Existing, ExistingPolicy, judge, marks, merge_account, update};
use super::ownership::Ownership;
use super::requests::outcome_of;
use super::run::{POLL, RestoreRun, failed};
use crate::outcome::{ItemOutcome, ItemRef, Scope};
use crate::{Error, kill};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// An object that is ready to be created.
pub(super) struct Ready {
    /// Where it is created.
    pub(super) collection: String,
    /// Where it is afterwards.
    pub(super) path: String,
    pub(super) object: Value,
    /// The object of the backup, addressed like the one to create, before actions changed it.
    pub(super) original: Value,
    /// The status to give it.
    pub(super) status: Option<Value>,
    pub(super) ownership: Ownership,
}

impl RestoreRun {
    pub(super) async fn create(
        &self,
        resource: &str,
        ready: &Ready,
        item: &ItemRef,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        let body = ready.object.to_string().into_bytes();
        loop {
            self.guard.effect()?;
            kill::point("restore.create.before");
            let create = || self.cluster.create(&ready.collection, &ready.ownership.manager, body.clone());
            let answer = self.send(task, create).await;
            kill::point("restore.create.after");
            let refused = match answer {
                Ok(created) => return self.follow_up(resource, ready, &created, item, task).await,
                Err(error) => error,
            };
            if !is_already_there(&refused, &ready.object) {
                return outcome_of(refused);
            }
            match self.look(&ready.path, task).await? {
                Found::Gone if refused.code() == Some(409) => {}
                Found::Gone => return outcome_of(refused),
                Found::Object(there) => return self.meet(resource, ready, there, item, task).await,
                Found::Stuck(message) => return Ok(failed("BeingDeleted", message)),
                Found::Unreadable(error) => return outcome_of(error),
            }
        }
    }

    /// Looks at what is there; what is being deleted is waited for.
    async fn look(&self, path: &str, task: &Task) -> Result<Found, Error> {
        let limit = self.rules.limits.terminating;
        let started = tokio::time::Instant::now();
        let mut waiting = None;
        loop {
            let found = match self.send(task, || self.cluster.get(path)).await {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(Found::Gone),
                Err(error @ Error::Api { .. }) => return Ok(Found::Unreadable(error)),
                Err(error) => return Err(error),
            };
            let there: Value = serde_json::from_slice(&found).unwrap_or_default();
            if there.pointer("/metadata/deletionTimestamp").is_none() {
                return Ok(Found::Object(there));
            }
            if started.elapsed() >= limit {
                let finalizers = there.pointer("/metadata/finalizers").map(Value::to_string).unwrap_or_default();
                return Ok(Found::Stuck(format!(
                    "it is still being deleted after {limit:?}; finalizers: {finalizers}"
                )));
            }
            waiting.get_or_insert_with(|| task.wait(format!("waiting for {path}, which is being deleted, to go")));
            tokio::time::sleep(POLL.min(limit)).await;
        }
    }

    /// Something of this name is there already.
    async fn meet(
        &self,
        resource: &str,
        ready: &Ready,
        there: Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        let updates = self.rules.existing == ExistingPolicy::Update;
        match judge(&there, &ready.object, &ready.original, &self.origin) {
            Existing::Ours => self.follow_up(resource, ready, there.to_string().as_bytes(), item, task).await,
            Existing::Equal => {
                if updates {
                    self.change(ready, &marks(&ready.object), item, task).await?;
                }
                Ok(ItemOutcome::Skipped { reason: "AlreadyThere" })
            }
            Existing::Different if resource == "serviceaccounts" => match merge_account(&there, &ready.object) {
                None => Ok(ItemOutcome::Skipped { reason: "AlreadyThere" }),
                Some(patch) => self.update(ready, &patch, item, task).await,
            },
            Existing::Different if updates => match update(&there, &ready.object, &ready.original) {
                None => Ok(ItemOutcome::Skipped { reason: "AlreadyThere" }),
                Some(patch) => self.update(ready, &patch, item, task).await,
            },
            Existing::Different => {
                let (kind, path) = (&item.kind, item.path());
                let text = format!("{kind} {path} is already there and differs from the backup; it is left as it is");
                self.recorder.warn(&Scope::of(item), text);
                Ok(ItemOutcome::Skipped { reason: "AlreadyThereAndDifferent" })
            }
        }
    }

    /// Changes what is there. What cannot be changed at least gets the restore's labels, under the policy that wants them.
    async fn update(&self, ready: &Ready, patch: &Value, item: &ItemRef, task: &Task) -> Result<ItemOutcome, Error> {
        if self.change(ready, patch, item, task).await? {
            return Ok(ItemOutcome::Updated);
        }
        if self.rules.existing == ExistingPolicy::Update {
            self.change(ready, &marks(&ready.object), item, task).await?;
        }
        Ok(ItemOutcome::Skipped { reason: "AlreadyThereAndNotChangeable" })
    }

    /// Writes a merge patch; a refusal is a warning. Says whether it was taken.
    async fn change(&self, ready: &Ready, patch: &Value, item: &ItemRef, task: &Task) -> Result<bool, Error> {
        self.guard.effect()?;
        let body = patch.to_string().into_bytes();
        kill::point("restore.change.before");
        let answer = self.send(task, || self.cluster.merge(&ready.path, body.clone())).await;
        kill::point("restore.change.after");
        self.taken(answer, "cannot be changed", item)
    }

    /// Whether a request was taken; one that was refused leaves a warning.
    fn taken<T>(&self, answer: Result<T, Error>, what: &str, item: &ItemRef) -> Result<bool, Error> {
        match answer {
            Ok(_) => Ok(true),
            Err(error @ (Error::Api { .. } | Error::Webhook { .. })) => {
                self.recorder.warn(&Scope::of(item), format!("{} {} {what}: {error}", item.kind, item.path()));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// What a create cannot say: status and owners. Doing it again changes nothing.
    async fn follow_up(
        &self,
        resource: &str,
        ready: &Ready,
        created: &[u8],
        item: &ItemRef,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        if let Some(status) = &ready.status {
            self.restore_status(ready, status, item, task).await?;
        }
        if let Some(patch) = ready.ownership.patch() {
            self.guard.effect()?;
            let body = patch.to_string().into_bytes();
            kill::point("restore.owners.before");
            let answer = self.send(task, || self.cluster.merge(&ready.path, body.clone())).await;
            kill::point("restore.owners.after");
            self.taken(answer, "was restored, but not who owns its fields", item)?;
        }
        if resource == "pods"
            && let Ok(pod) = serde_json::from_slice::<Value>(created)
        {
            if let Some(data) = &self.rules.data {
                data.begin(&pod);
            }
            self.rules.hooks.begin(&pod, &self.recorder);
        }
        if resource == DEFINITIONS {
            return self.wait_until_established(ready, item, task).await;
        }
        Ok(ItemOutcome::Created)
    }

    async fn restore_status(&self, ready: &Ready, status: &Value, item: &ItemRef, task: &Task) -> Result<(), Error> {
        self.guard.effect()?;
        let body = json!({ "status": status }).to_string().into_bytes();
        let below = format!("{}/status", ready.path);
        kill::point("restore.status.before");
        let mut answer = self.send(task, || self.cluster.merge(&below, body.clone())).await;
        // A kind without a status subresource keeps its status among its other fields.
        if answer.as_ref().is_err_and(|error| error.code() == Some(404)) {
            answer = self.send(task, || self.cluster.merge(&ready.path, body.clone())).await;
        }
        kill::point("restore.status.after");
        self.taken(answer, "was restored, but not its status", item).map(|_| ())
    }

    /// What needs a definition can be created once the API server has taken it up.
    async fn wait_until_established(&self, ready: &Ready, item: &ItemRef, task: &Task) -> Result<ItemOutcome, Error> {
        let limit = self.rules.limits.resource;
        let started = tokio::time::Instant::now();
        let mut waiting = None;
        loop {
            let found = match self.send(task, || self.cluster.get(&ready.path)).await {
                Err(error) => return outcome_of(error),
                Ok(found) => found,
            };
            let definition: Value = found.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
            if condition(&definition, "Established", "True").is_some() && self.is_served(&definition, task).await {
                return Ok(ItemOutcome::Created);
            }
            if started.elapsed() >= limit {
                let why = condition(&definition, "NamesAccepted", "False").map(|why| format!(": {why}"));
                let text = format!("it is not established after {limit:?}{}", why.unwrap_or_default());
                return Ok(failed("NotEstablished", text));
            }
            waiting.get_or_insert_with(|| task.wait(format!("waiting for definition {} to be established", item.name)));
            tokio::time::sleep(POLL.min(limit)).await;
        }
    }

    /// A definition is served a moment after it is established.
    async fn is_served(&self, definition: &Value, task: &Task) -> bool {
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
        let served = versions.into_iter().flatten().find(|version| version["served"] == true);
        let Some(version) = served.and_then(|version| version["name"].as_str()) else { return true };
        let path = format!("/apis/{}/{version}/{}?limit=1", text("/spec/group"), text("/spec/names/plural"));
        match self.send(task, || self.cluster.get(&path)).await {
            Ok(found) => found.is_some(),
            // Not being allowed to look says that there is something to look at.
            Err(error) => error.code() == Some(403),
        }
    }
}

enum Found {
    Gone,
    Object(Value),
    Stuck(String),
    Unreadable(Error),
}

/// The message of a condition that has this status.
fn condition<'a>(definition: &'a Value, kind: &str, status: &str) -> Option<&'a str> {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array)?;
    let found = conditions.iter().find(|condition| condition["type"] == kind && condition["status"] == status)?;
    Some(found["message"].as_str().unwrap_or_default())
}

/// Whether a refusal means that the object is there. For a Service, the ports it asks for may be its own.
fn is_already_there(error: &Error, object: &Value) -> bool {
    let Some(status) = error.status() else { return false };
    if status.code == 409 {
        return status.reason != "Conflict";
    }
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    let taken = |message: &str| message.contains("provided port is already allocated");
    object["kind"] == "Service" && !causes.is_empty() && causes.iter().all(|cause| taken(&cause.message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use kube::core::response::{StatusCause, StatusDetails};

    fn refused(code: u16, reason: &str, causes: &[&str]) -> Error {
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
    fn an_object_is_there_when_the_api_server_says_so_or_when_a_service_meets_its_own_ports() {
        let (service, pod) = (json!({"kind": "Service"}), json!({"kind": "Pod"}));
        let port = "Invalid value: 30080: provided port is already allocated";
        for (error, object, there) in [
            (refused(409, "AlreadyExists", &[]), &pod, true),
            (refused(409, "Conflict", &[]), &pod, false),
            (refused(422, "Invalid", &[port]), &service, true),
            (refused(422, "Invalid", &[port, "Invalid value: x"]), &service, false),
            (refused(422, "Invalid", &[port]), &pod, false),
            (refused(422, "Invalid", &[]), &service, false),
        ] {
            assert_eq!(is_already_there(&error, object), there, "{error}");
        }
    }
}
