//! Target namespaces: existing, or created by the restore. Each is checked once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_progress::Task;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::field_ownership::FIELD_MANAGER;
use super::item::namespace;
use super::run::RestoreRun;
use crate::outcome::ItemOutcome;
use crate::{Error, kill};

pub(super) const NAMESPACES: &str = "namespaces";

/// Whether a namespace existed or was created, or why it cannot be used.
type NamespaceResult = Result<NamespaceOrigin, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamespaceOrigin {
    Created,
    Existing,
}

#[derive(Default)]
pub(super) struct Namespaces {
    results: Mutex<HashMap<String, Arc<OnceCell<NamespaceResult>>>>,
}

impl RestoreRun {
    /// Ensures that the target namespace of `source` exists and is not being deleted. The inner error is the cause.
    pub(super) async fn namespace_ready(&self, source: &str, task: &Task) -> Result<Result<(), String>, Error> {
        Ok(self.ensure_namespace(source, task).await?.map(|_| ()))
    }

    /// Restores a Namespace object: created from the backup, or not changed if it exists.
    pub(super) async fn restore_namespace(&self, source: &str, task: &Task) -> Result<ItemOutcome, Error> {
        Ok(match self.ensure_namespace(source, task).await? {
            Ok(NamespaceOrigin::Created) => ItemOutcome::Created,
            Ok(NamespaceOrigin::Existing) => ItemOutcome::Skipped { reason: "AlreadyExists" },
            Err(message) => ItemOutcome::Failed { reason: "NamespaceNotReady".into(), message },
        })
    }

    async fn ensure_namespace(&self, source: &str, task: &Task) -> Result<NamespaceResult, Error> {
        let target = self.origin.target(source).to_owned();
        let cell = {
            let mut results = self.state.namespaces.results.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(results.entry(target.clone()).or_default())
        };
        cell.get_or_try_init(|| self.create_namespace(source, &target, task)).await.cloned()
    }

    async fn create_namespace(&self, source: &str, target: &str, task: &Task) -> Result<NamespaceResult, Error> {
        match self.read_namespace(target, task).await? {
            Err(error) => return Ok(Err(error)),
            Ok(Some(namespace_origin)) => return Ok(Ok(namespace_origin)),
            Ok(None) => {}
        }
        let from_backup = self.find_object(NAMESPACES, None, source)?;
        let object = namespace(target, from_backup.as_ref(), &self.origin);
        let body = object.to_string().into_bytes();
        self.guard.check_effect()?;
        kill::point("restore.namespace.before");
        let create = || self.cluster.create("/api/v1/namespaces", FIELD_MANAGER, body.clone());
        let answer = self.send(task, create).await;
        kill::point("restore.namespace.after");
        match answer {
            Ok(_) => Ok(Ok(NamespaceOrigin::Created)),
            // Created by others meanwhile, or the response was lost.
            Err(error) if error.code() == Some(409) => Ok(Ok(self.read_origin(target, task).await?)),
            Err(error @ (Error::Api { .. } | Error::Webhook { .. })) => {
                Ok(Err(format!("failed to create namespace {target}: {error}")))
            }
            Err(error) => Err(error),
        }
    }

    async fn read_origin(&self, name: &str, task: &Task) -> Result<NamespaceOrigin, Error> {
        let path = path(name);
        let found = self.send(task, || self.cluster.get(&path)).await?;
        let object: Value = found.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Ok(self.namespace_origin(&object))
    }

    fn namespace_origin(&self, object: &Value) -> NamespaceOrigin {
        match super::existing_object::compare_existing(object, &Value::Null, &Value::Null, &self.origin) {
            super::existing_object::ExistingObject::CreatedByRestore => NamespaceOrigin::Created,
            _ => NamespaceOrigin::Existing,
        }
    }

    /// Reads a namespace. Waits while it is being deleted; the inner error is a timeout.
    async fn read_namespace(&self, name: &str, task: &Task) -> Result<Result<Option<NamespaceOrigin>, String>, Error> {
        let (limit, path) = (self.rules.timeouts.terminating, path(name));
        let started = tokio::time::Instant::now();
        let mut waiting = None;
        loop {
            let Some(found) = self.send(task, || self.cluster.get(&path)).await? else { return Ok(Ok(None)) };
            let object: Value = serde_json::from_slice(&found).unwrap_or_default();
            if object.pointer("/metadata/deletionTimestamp").is_none() {
                return Ok(Ok(Some(self.namespace_origin(&object))));
            }
            if started.elapsed() >= limit {
                return Ok(Err(format!(
                    "namespace {name} is still being deleted after {limit:?}{}",
                    deletion_delay(&object)
                )));
            }
            waiting.get_or_insert_with(|| {
                task.wait(format!("waiting for the deletion of namespace {name}{}", deletion_delay(&object)))
            });
            tokio::time::sleep(super::run::POLL_INTERVAL.min(limit)).await;
        }
    }
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/{name}")
}

/// The condition that delays the deletion of a namespace.
fn deletion_delay(namespace: &Value) -> String {
    let conditions = namespace.pointer("/status/conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let condition = |kind: &str| conditions.iter().find(|c| c["type"] == kind && c["status"] == "True");
    let found = ["NamespaceFinalizersRemaining", "NamespaceContentRemaining", "NamespaceDeletionContentFailure"];
    let message = found.iter().find_map(|kind| condition(kind)).and_then(|condition| condition["message"].as_str());
    message.map(|message| format!(": {message}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_message_of_the_delaying_condition_is_reported() {
        let conditions = json!([
            {"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining: configmaps. has 1"},
            {"type": "NamespaceFinalizersRemaining", "status": "True", "message": "Some content has finalizers: x"}]);
        let namespace = json!({"status": {"conditions": conditions}});
        assert_eq!(deletion_delay(&namespace), ": Some content has finalizers: x");
        assert_eq!(deletion_delay(&json!({})), "");
    }
}
