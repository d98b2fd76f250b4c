//! Namespaces that objects go into: there, or made on the way. Each is seen to once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_progress::Task;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::item::namespace;
use super::ownership::OURSELVES;
use super::run::RestoreRun;
use crate::outcome::ItemOutcome;
use crate::{Error, kill};

pub(super) const NAMESPACES: &str = "namespaces";

/// What was found out about a namespace: how it came to be there, or why nothing can go into it.
type Found = Result<Presence, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Made,
    There,
}

#[derive(Default)]
pub(super) struct Namespaces {
    seen: Mutex<HashMap<String, Arc<OnceCell<Found>>>>,
}

impl RestoreRun {
    /// Sees to it that the namespace objects of `source` go into is there and not on its way out. The inner error is why not.
    pub(super) async fn namespace_ready(&self, source: &str, task: &Task) -> Result<Result<(), String>, Error> {
        Ok(self.namespace_found(source, task).await?.map(|_| ()))
    }

    /// The object of a namespace itself: made from the backup's, or left as it is.
    pub(super) async fn restore_namespace(&self, source: &str, task: &Task) -> Result<ItemOutcome, Error> {
        Ok(match self.namespace_found(source, task).await? {
            Ok(Presence::Made) => ItemOutcome::Created,
            Ok(Presence::There) => ItemOutcome::Skipped { reason: "AlreadyThere" },
            Err(message) => ItemOutcome::Failed { reason: "NamespaceNotReady".into(), message },
        })
    }

    async fn namespace_found(&self, source: &str, task: &Task) -> Result<Found, Error> {
        let target = self.origin.target(source).to_owned();
        let cell = {
            let mut seen = self.inner.namespaces.seen.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(seen.entry(target.clone()).or_default())
        };
        cell.get_or_try_init(|| self.make_namespace(source, &target, task)).await.cloned()
    }

    async fn make_namespace(&self, source: &str, target: &str, task: &Task) -> Result<Found, Error> {
        match self.namespace_settled(target, task).await? {
            Err(stuck) => return Ok(Err(stuck)),
            Ok(Some(presence)) => return Ok(Ok(presence)),
            Ok(None) => {}
        }
        let known = self.find_object(NAMESPACES, None, source)?;
        let object = namespace(target, known.as_ref(), &self.origin);
        let body = object.to_string().into_bytes();
        self.guard.effect()?;
        kill::point("restore.namespace.before");
        let create = || self.cluster.create("/api/v1/namespaces", OURSELVES, body.clone());
        let answer = self.send(task, create).await;
        kill::point("restore.namespace.after");
        match answer {
            Ok(_) => Ok(Ok(Presence::Made)),
            // Somebody was quicker, or our own answer got lost.
            Err(error) if error.code() == Some(409) => Ok(Ok(self.whose(target, task).await?)),
            Err(error @ (Error::Api { .. } | Error::Webhook { .. })) => {
                Ok(Err(format!("namespace {target} cannot be created: {error}")))
            }
            Err(error) => Err(error),
        }
    }

    async fn whose(&self, name: &str, task: &Task) -> Result<Presence, Error> {
        let path = path(name);
        let found = self.send(task, || self.cluster.get(&path)).await?;
        let object: Value = found.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Ok(self.presence(&object))
    }

    fn presence(&self, object: &Value) -> Presence {
        match super::existing::judge(object, &Value::Null, &Value::Null, &self.origin) {
            super::existing::Existing::Ours => Presence::Made,
            _ => Presence::There,
        }
    }

    /// Whether the namespace is there, once it is not going away any more. The inner error says that it does not go.
    async fn namespace_settled(&self, name: &str, task: &Task) -> Result<Result<Option<Presence>, String>, Error> {
        let (limit, path) = (self.rules.limits.terminating, path(name));
        let started = tokio::time::Instant::now();
        let mut waiting = None;
        loop {
            let Some(found) = self.send(task, || self.cluster.get(&path)).await? else { return Ok(Ok(None)) };
            let object: Value = serde_json::from_slice(&found).unwrap_or_default();
            if object.pointer("/metadata/deletionTimestamp").is_none() {
                return Ok(Ok(Some(self.presence(&object))));
            }
            if started.elapsed() >= limit {
                return Ok(Err(format!(
                    "namespace {name} is still being deleted after {limit:?}{}",
                    what_holds(&object)
                )));
            }
            waiting.get_or_insert_with(|| {
                task.wait(format!("waiting for namespace {name}, which is being deleted, to go{}", what_holds(&object)))
            });
            tokio::time::sleep(super::run::POLL.min(limit)).await;
        }
    }
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/{name}")
}

/// What keeps a namespace that is being deleted, as its conditions have it.
fn what_holds(namespace: &Value) -> String {
    let conditions = namespace.pointer("/status/conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let holds = |kind: &str| conditions.iter().find(|c| c["type"] == kind && c["status"] == "True");
    let found = ["NamespaceFinalizersRemaining", "NamespaceContentRemaining", "NamespaceDeletionContentFailure"];
    let message = found.iter().find_map(|kind| holds(kind)).and_then(|condition| condition["message"].as_str());
    message.map(|message| format!(": {message}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_stuck_namespace_tells_what_holds_it() {
        let conditions = json!([
            {"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining: configmaps. has 1"},
            {"type": "NamespaceFinalizersRemaining", "status": "True", "message": "Some content has finalizers: x"}]);
        let namespace = json!({"status": {"conditions": conditions}});
        assert_eq!(what_holds(&namespace), ": Some content has finalizers: x");
        assert_eq!(what_holds(&json!({})), "");
    }
}
