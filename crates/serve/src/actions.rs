//! The two changes that the dashboard makes where they are allowed: cancel and retry.

use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plimsoll_observe::{Kind, Object, OperationSummary, Verdict};
use serde_json::json;

use crate::error::Error;

fn api(client: &Client, kind: Kind, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &kind.resource())
}

/// Requests the cancellation of an operation that this product runs, or of a single transfer.
pub async fn cancel(client: &Client, line: &OperationSummary, object: &Object) -> Result<String, Error> {
    let reference = &line.reference;
    if line.explanation.verdict.is_ended() {
        return Err(Error::Refused(format!("{reference} has already ended: {}", line.explanation.phase)));
    }
    let (kind, name) = match operation_name(reference.kind, object) {
        Some(name) if line.has_operation => (Kind::Operation, name),
        _ if reference.kind.is_transfer() => (reference.kind, reference.name.clone()),
        _ => {
            return Err(Error::Refused(format!(
                "cannot cancel {reference}: it is run by another program, which has no way to cancel it"
            )));
        }
    };
    let patch = Patch::Merge(json!({ "spec": { "cancel": true } }));
    let answer = api(client, kind, &reference.namespace).patch(&name, &PatchParams::default(), &patch).await;
    answer.map_err(|error| Error::api(format!("cancel {reference}"), error))?;
    Ok(format!("cancellation of {reference} requested"))
}

fn operation_name(kind: Kind, object: &Object) -> Option<String> {
    let verb = match kind {
        Kind::Backup => "backup",
        Kind::Restore => "restore",
        Kind::ActionSet => "run",
        Kind::DeleteBackupRequest => "delete",
        _ => return None,
    };
    Some(format!("{verb}-{}", object.name()))
}

/// Creates a copy of a failed operation under a new name.
pub async fn retry(client: &Client, line: &OperationSummary, object: &Object) -> Result<String, Error> {
    let reference = &line.reference;
    let failed = matches!(line.explanation.verdict, Verdict::Failed | Verdict::PartiallyFailed | Verdict::Cancelled);
    if !failed || !matches!(reference.kind, Kind::Backup | Kind::Restore | Kind::ActionSet) {
        return Err(Error::Refused(format!("cannot retry {reference}: it has not failed")));
    }
    let name = retry_name(&reference.name, Timestamp::now());
    let mut next = DynamicObject::new(&name, &reference.kind.resource()).within(&reference.namespace);
    // A schedule finds its backups by their labels: a successful retry counts as the schedule's success.
    next.metadata.labels = object.at("/metadata/labels").and_then(|labels| serde_json::from_value(labels.clone()).ok());
    next.metadata.annotations = Some([("plimsoll.dev/retry-of".to_owned(), reference.name.clone())].into());
    next.data = json!({ "spec": object.at("/spec").cloned().unwrap_or_else(|| json!({})) });
    let answer = api(client, reference.kind, &reference.namespace).create(&PostParams::default(), &next).await;
    answer.map_err(|error| Error::api(format!("retry {reference}"), error))?;
    Ok(format!("{}/{name} created", reference.kind.word()))
}

/// The name of the next attempt: the original name and the time, without the suffix of an earlier retry.
fn retry_name(name: &str, now: Timestamp) -> String {
    const SUFFIX: &str = "-retry-";
    const MAX_BASE_BYTES: usize = 200;
    let base = name.rfind(SUFFIX).map_or(name, |at| &name[..at]);
    let base = &base[..base.floor_char_boundary(MAX_BASE_BYTES)];
    format!("{base}{SUFFIX}{}", now.strftime("%Y%m%d%H%M%S"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_of_a_retry_does_not_grow_its_name() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(retry_name("nightly", now), "nightly-retry-20260102030405");
        assert_eq!(retry_name("nightly-retry-20250101000000", now), "nightly-retry-20260102030405");
    }
}
