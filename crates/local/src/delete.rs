//! Delete one object or a collection.

use crate::{
    Core, admission,
    database::Draft,
    key::Key,
    kind::Kind,
    object::{
        FOREGROUND_FINALIZER, ORPHAN_FINALIZER, finalizers, is_removal_blocked, is_terminating, metadata, now,
        set_finalizers, text,
    },
    request::Query,
    response::ApiResponse,
    selector::Selector,
    status_error::StatusError,
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Kinds whose deletion returns the object rather than a `Status`.
const RESOURCES_RETURNED_ON_DELETE: [&str; 8] = [
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourcequotas",
    "serviceaccounts",
    "services",
];
/// Maximum number of deletions that wait for a commit at the same time.
pub(crate) const MAX_CONCURRENT_DELETIONS: usize = 64;

/// The body of a delete request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeleteOptions {
    preconditions: Preconditions,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    dry_run: Vec<String>,
    grace_period_seconds: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// The treatment of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// According to the finalizers of the object, else background.
    Default,
    Background,
    Foreground,
    Orphan,
}

/// A parsed delete request.
#[derive(Clone, Debug)]
pub(crate) struct Deletion {
    preconditions: Preconditions,
    propagation: Propagation,
    dry_run: bool,
    grace: Option<u64>,
}

impl Deletion {
    /// A deletion by the API itself, of exactly this object.
    pub fn of(uid: &str, propagation: Propagation) -> Self {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        Self { preconditions, propagation, dry_run: false, grace: None }
    }

    /// A deletion without preconditions.
    pub fn unconditional() -> Self {
        Self {
            preconditions: Preconditions::default(),
            propagation: Propagation::Background,
            dry_run: false,
            grace: None,
        }
    }

    pub fn parse(body: &[u8], query: &Query) -> Result<Self, StatusError> {
        let options: DeleteOptions = if body.is_empty() {
            DeleteOptions::default()
        } else {
            let read = serde_json::from_slice(body);
            read.map_err(|error| StatusError::bad_request(format!("couldn't read DeleteOptions: {error}")))?
        };
        let mut dry_run = query.dry_run;
        for value in &options.dry_run {
            dry_run |= crate::request::dry_run(value)?;
        }
        let policy = options.propagation_policy.as_deref().or(query.propagation.as_deref());
        let propagation = match (policy, options.orphan_dependents) {
            (None, None) => Propagation::Default,
            (Some("Background"), _) | (None, Some(false)) => Propagation::Background,
            (Some("Foreground"), _) => Propagation::Foreground,
            (Some("Orphan"), _) | (None, Some(true)) => Propagation::Orphan,
            (Some(other), _) => return Err(unknown_policy(other)),
        };
        let grace = options.grace_period_seconds.or(query.grace);
        Ok(Self { preconditions: options.preconditions, propagation, dry_run, grace })
    }
}

fn unknown_policy(policy: &str) -> StatusError {
    let message = format!(
        "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: {policy:?}: supported values: \
         \"Background\", \"Foreground\", \"Orphan\", \"nil\""
    );
    StatusError::new(422, "Invalid", message)
}

/// The result of a deletion.
pub(crate) struct DeletionResult {
    /// Its last state, or its state with a deletion timestamp.
    pub object: Bytes,
    removed: bool,
    uid: String,
}

impl Core {
    pub async fn delete(&self, kind: Arc<Kind>, key: Key, deletion: Deletion) -> Result<ApiResponse, StatusError> {
        let name = key.name.clone();
        let deleted = self.delete_object(Arc::clone(&kind), key, deletion).await?;
        if !deleted.removed
            || (!kind.is_custom() && RESOURCES_RETURNED_ON_DELETE.contains(&kind.group_resource().as_str()))
        {
            return Ok(ApiResponse::ok(deleted.object));
        }
        let mut details = json!({"name": name, "kind": kind.plural, "uid": deleted.uid});
        if !kind.group.is_empty() {
            details["group"] = json!(kind.group);
        }
        Ok(ApiResponse::json(&json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
        })))
    }

    pub async fn delete_object(
        &self,
        kind: Arc<Kind>,
        key: Key,
        deletion: Deletion,
    ) -> Result<DeletionResult, StatusError> {
        admission::check_deletion(&kind, &key.name)?;
        let has_grace_period = self.node.get().is_some() && kind.is("pods");
        let job = move |draft: &mut Draft<'_>| {
            let mut old = draft.get(&key)?.ok_or_else(|| StatusError::not_found(kind.details_for(&key.name)))?;
            check_preconditions(&kind, &old, &deletion.preconditions)?;
            let uid = text(&old, "/metadata/uid").to_owned();
            let mut new = mark_for_deletion(&old, deletion.propagation);
            if has_grace_period {
                set_grace_period(&old, &mut new, deletion.grace);
            }
            let removed = !is_removal_blocked(&new);
            let stored =
                if removed { draft.remove(&key, &mut old)? } else { crate::write::store(draft, &key, &old, new)? };
            if deletion.dry_run {
                draft.discard();
            }
            Ok(DeletionResult { object: kind.encode_version(&stored)?, removed, uid })
        };
        self.database.write(job).await
    }

    /// Deletes all objects that a selector matches and returns them as a list.
    pub async fn delete_collection(
        self: &Arc<Self>,
        kind: Arc<Kind>,
        namespace: Option<&str>,
        query: &Query,
        deletion: Deletion,
    ) -> Result<ApiResponse, StatusError> {
        let selector = Selector::parse(&query.labels, &query.fields, &kind)?;
        let keys = self.select(&kind, namespace, &selector)?;
        let delete = |key| {
            let (kind, deletion) = (Arc::clone(&kind), deletion.clone());
            async move {
                match self.delete_object(kind, key, deletion).await {
                    Ok(deleted) => Ok(Some(serde_json::from_slice::<Value>(&deleted.object)?)),
                    // Deleted by another request meanwhile.
                    Err(failure) if failure.code == 404 => Ok(None),
                    Err(failure) => Err(failure),
                }
            }
        };
        let deleted: Vec<Option<Value>> =
            stream::iter(keys).map(delete).buffered(MAX_CONCURRENT_DELETIONS).try_collect().await?;
        let items: Vec<Value> = deleted.into_iter().flatten().collect();
        let revision = self.database.snapshot()?.revision.to_string();
        Ok(ApiResponse::json(&json!({
            "kind": kind.list_kind, "apiVersion": kind.api_version(),
            "metadata": {"resourceVersion": revision}, "items": items,
        })))
    }
}

fn check_preconditions(kind: &Kind, object: &Value, preconditions: &Preconditions) -> Result<(), StatusError> {
    let wanted = [
        ("UID", "/metadata/uid", &preconditions.uid),
        ("ResourceVersion", "/metadata/resourceVersion", &preconditions.resource_version),
    ];
    for (what, pointer, expected) in wanted {
        let actual = text(object, pointer);
        if let Some(expected) = expected.as_deref().filter(|expected| *expected != actual) {
            let cause =
                format!("Precondition failed: {what} in precondition: {expected}, {what} in object meta: {actual}");
            return Err(StatusError::conflict(kind.details_for(text(object, "/metadata/name")), cause));
        }
    }
    Ok(())
}

/// A running pod stays until the node has stopped it within the grace period.
fn set_grace_period(old: &Value, pod: &mut Value, grace: Option<u64>) {
    let before = old["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(u64::MAX);
    let pending = text(pod, "/status/startTime").is_empty();
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
    let grace = if pending || crate::node::is_finished(pod) { 0 } else { grace.unwrap_or(own).min(before) };
    metadata(pod).insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
}

/// The object with a deletion timestamp and the finalizers of the propagation policy.
fn mark_for_deletion(old: &Value, propagation: Propagation) -> Value {
    let mut new = old.clone();
    let mut remaining: Vec<String> = finalizers(old).into_iter().map(str::to_owned).collect();
    if propagation != Propagation::Default {
        remaining.retain(|finalizer| finalizer != FOREGROUND_FINALIZER && finalizer != ORPHAN_FINALIZER);
    }
    match propagation {
        Propagation::Foreground => remaining.push(FOREGROUND_FINALIZER.to_owned()),
        Propagation::Orphan => remaining.push(ORPHAN_FINALIZER.to_owned()),
        Propagation::Background | Propagation::Default => {}
    }
    set_finalizers(&mut new, &remaining);
    if !is_terminating(old) {
        let generation = new["metadata"]["generation"].as_u64();
        metadata(&mut new).insert("deletionTimestamp".to_owned(), json!(now()));
        metadata(&mut new).insert("deletionGracePeriodSeconds".to_owned(), json!(0));
        if let Some(generation) = generation.filter(|_| is_removal_blocked(&new)) {
            metadata(&mut new).insert("generation".to_owned(), json!(generation + 1));
        }
        if new["kind"] == "Namespace" && new["apiVersion"] == "v1" {
            new["status"]["phase"] = json!("Terminating");
        }
    }
    new
}
