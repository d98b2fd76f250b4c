//! Deleting, one object or many.

use crate::{
    Core, admission,
    answer::Answer,
    database::Draft,
    failure::Failure,
    key::Key,
    kind::Kind,
    object::{FOREGROUND, ORPHAN, finalizers, is_held, is_terminating, metadata, now, set_finalizers, text},
    selector::Selector,
    target::Query,
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Kinds whose deletion is answered with the object rather than with a `Status`.
const ANSWER_WITH_OBJECT: [&str; 8] = [
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourcequotas",
    "serviceaccounts",
    "services",
];
/// Deletions that may wait for a commit at once.
pub(crate) const PARALLEL: usize = 64;

/// The body of a delete request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Options {
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

/// What happens to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// As the object's own finalizers say, else background.
    Unsaid,
    Background,
    Foreground,
    Orphan,
}

/// A deletion that has been understood.
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

    /// A deletion of whatever is there.
    pub fn anything() -> Self {
        Self {
            preconditions: Preconditions::default(),
            propagation: Propagation::Background,
            dry_run: false,
            grace: None,
        }
    }

    pub fn parse(body: &[u8], query: &Query) -> Result<Self, Failure> {
        let options: Options = if body.is_empty() {
            Options::default()
        } else {
            let read = serde_json::from_slice(body);
            read.map_err(|error| Failure::bad_request(format!("couldn't read DeleteOptions: {error}")))?
        };
        let mut dry_run = query.dry_run;
        for value in &options.dry_run {
            dry_run |= crate::target::dry_run(value)?;
        }
        let policy = options.propagation_policy.as_deref().or(query.propagation.as_deref());
        let propagation = match (policy, options.orphan_dependents) {
            (None, None) => Propagation::Unsaid,
            (Some("Background"), _) | (None, Some(false)) => Propagation::Background,
            (Some("Foreground"), _) => Propagation::Foreground,
            (Some("Orphan"), _) | (None, Some(true)) => Propagation::Orphan,
            (Some(other), _) => return Err(unknown_policy(other)),
        };
        let grace = options.grace_period_seconds.or(query.grace);
        Ok(Self { preconditions: options.preconditions, propagation, dry_run, grace })
    }
}

fn unknown_policy(policy: &str) -> Failure {
    let message = format!(
        "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: {policy:?}: supported values: \
         \"Background\", \"Foreground\", \"Orphan\", \"nil\""
    );
    Failure::new(422, "Invalid", message)
}

/// What became of an object.
pub(crate) struct Deleted {
    /// Its last state, or its state with a deletion timestamp.
    pub object: Bytes,
    gone: bool,
    uid: String,
}

impl Core {
    pub async fn delete(&self, kind: Arc<Kind>, key: Key, deletion: Deletion) -> Result<Answer, Failure> {
        let name = key.name.clone();
        let deleted = self.delete_object(Arc::clone(&kind), key, deletion).await?;
        if !deleted.gone || (!kind.is_custom() && ANSWER_WITH_OBJECT.contains(&kind.group_resource().as_str())) {
            return Ok(Answer::ok(deleted.object));
        }
        let mut details = json!({"name": name, "kind": kind.plural, "uid": deleted.uid});
        if !kind.group.is_empty() {
            details["group"] = json!(kind.group);
        }
        Ok(Answer::json(&json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
        })))
    }

    pub async fn delete_object(&self, kind: Arc<Kind>, key: Key, deletion: Deletion) -> Result<Deleted, Failure> {
        admission::may_delete(&kind, &key.name)?;
        let runs = self.node.get().is_some() && kind.is("pods");
        let job = move |draft: &mut Draft<'_>| {
            let mut old = draft.get(&key)?.ok_or_else(|| Failure::not_found(kind.about(&key.name)))?;
            check(&kind, &old, &deletion.preconditions)?;
            let uid = text(&old, "/metadata/uid").to_owned();
            let mut new = mark(&old, deletion.propagation);
            if runs {
                leave_time(&old, &mut new, deletion.grace);
            }
            let gone = !is_held(&new);
            let stored =
                if gone { draft.remove(&key, &mut old)? } else { crate::write::store(draft, &key, &old, new)? };
            if deletion.dry_run {
                draft.discard();
            }
            Ok(Deleted { object: kind.present(&stored)?, gone, uid })
        };
        self.database.write(job).await
    }

    /// Deletes everything that a selection matches; the answer lists it.
    pub async fn delete_collection(
        self: &Arc<Self>,
        kind: Arc<Kind>,
        namespace: Option<&str>,
        query: &Query,
        deletion: Deletion,
    ) -> Result<Answer, Failure> {
        let selector = Selector::parse(&query.labels, &query.fields, &kind)?;
        let keys = self.select(&kind, namespace, &selector)?;
        let delete = |key| {
            let (kind, deletion) = (Arc::clone(&kind), deletion.clone());
            async move {
                match self.delete_object(kind, key, deletion).await {
                    Ok(deleted) => Ok(Some(serde_json::from_slice::<Value>(&deleted.object)?)),
                    // Somebody else was faster.
                    Err(failure) if failure.code == 404 => Ok(None),
                    Err(failure) => Err(failure),
                }
            }
        };
        let deleted: Vec<Option<Value>> = stream::iter(keys).map(delete).buffered(PARALLEL).try_collect().await?;
        let items: Vec<Value> = deleted.into_iter().flatten().collect();
        let revision = self.database.snapshot()?.revision.to_string();
        Ok(Answer::json(&json!({
            "kind": kind.list_kind, "apiVersion": kind.api_version(),
            "metadata": {"resourceVersion": revision}, "items": items,
        })))
    }
}

fn check(kind: &Kind, object: &Value, preconditions: &Preconditions) -> Result<(), Failure> {
    let wanted = [
        ("UID", "/metadata/uid", &preconditions.uid),
        ("ResourceVersion", "/metadata/resourceVersion", &preconditions.resource_version),
    ];
    for (what, pointer, expected) in wanted {
        let actual = text(object, pointer);
        if let Some(expected) = expected.as_deref().filter(|expected| *expected != actual) {
            let why =
                format!("Precondition failed: {what} in precondition: {expected}, {what} in object meta: {actual}");
            return Err(Failure::conflict(kind.about(text(object, "/metadata/name")), why));
        }
    }
    Ok(())
}

/// A pod that runs stays until the node has ended it, in the time that it has for that.
fn leave_time(old: &Value, pod: &mut Value, grace: Option<u64>) {
    let before = old["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(u64::MAX);
    let pending = text(pod, "/status/startTime").is_empty();
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
    let grace = if pending || crate::node::is_finished(pod) { 0 } else { grace.unwrap_or(own).min(before) };
    metadata(pod).insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
}

/// The object as a deletion leaves it if something holds it back.
fn mark(old: &Value, propagation: Propagation) -> Value {
    let mut new = old.clone();
    let mut kept: Vec<String> = finalizers(old).into_iter().map(str::to_owned).collect();
    if propagation != Propagation::Unsaid {
        kept.retain(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
    }
    match propagation {
        Propagation::Foreground => kept.push(FOREGROUND.to_owned()),
        Propagation::Orphan => kept.push(ORPHAN.to_owned()),
        Propagation::Background | Propagation::Unsaid => {}
    }
    set_finalizers(&mut new, &kept);
    if !is_terminating(old) {
        let generation = new["metadata"]["generation"].as_u64();
        metadata(&mut new).insert("deletionTimestamp".to_owned(), json!(now()));
        metadata(&mut new).insert("deletionGracePeriodSeconds".to_owned(), json!(0));
        if let Some(generation) = generation.filter(|_| is_held(&new)) {
            metadata(&mut new).insert("generation".to_owned(), json!(generation + 1));
        }
        if new["kind"] == "Namespace" && new["apiVersion"] == "v1" {
            new["status"]["phase"] = json!("Terminating");
        }
    }
    new
}
