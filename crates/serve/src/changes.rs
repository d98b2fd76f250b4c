//! The two things that may be changed from here, if it was allowed: asking for an end, and doing it again.

use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plimsoll_observe::{Kind, Line, Object, Verdict};
use serde_json::json;

use crate::error::Error;

fn api(client: &Client, kind: Kind, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &kind.resource())
}

/// Asks for the end of an operation of ours, or of a single transfer.
pub async fn cancel(client: &Client, line: &Line, object: &Object) -> Result<String, Error> {
    let reference = &line.reference;
    if line.told.verdict.is_ended() {
        return Err(Error::Refused(format!("{reference} has ended already: {}", line.told.phase)));
    }
    let (kind, name) = match operation_name(reference.kind, object) {
        Some(name) if line.ours => (Kind::Operation, name),
        _ if reference.kind.is_transfer() => (reference.kind, reference.name.clone()),
        _ => return Err(Error::Refused(format!("{reference} is not ours, and its program has no way to cancel it"))),
    };
    let patch = Patch::Merge(json!({ "spec": { "cancel": true } }));
    let answer = api(client, kind, &reference.namespace).patch(&name, &PatchParams::default(), &patch).await;
    answer.map_err(|error| Error::api(format!("cancel {reference}"), error))?;
    Ok(format!("{reference} is asked to end"))
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

/// Asks for the same again, under a name of its own.
pub async fn retry(client: &Client, line: &Line, object: &Object) -> Result<String, Error> {
    let reference = &line.reference;
    let ended_badly = matches!(line.told.verdict, Verdict::Failed | Verdict::PartiallyFailed | Verdict::Cancelled);
    if !ended_badly || !matches!(reference.kind, Kind::Backup | Kind::Restore | Kind::ActionSet) {
        return Err(Error::Refused(format!("{reference} has not failed: there is nothing to do again")));
    }
    let name = again(&reference.name, Timestamp::now());
    let mut next = DynamicObject::new(&name, &reference.kind.resource()).within(&reference.namespace);
    // A schedule knows its backups by them, and has its success if this one succeeds.
    next.metadata.labels = object.at("/metadata/labels").and_then(|labels| serde_json::from_value(labels.clone()).ok());
    next.metadata.annotations = Some([("plimsoll.dev/retry-of".to_owned(), reference.name.clone())].into());
    next.data = json!({ "spec": object.at("/spec").cloned().unwrap_or_else(|| json!({})) });
    let answer = api(client, reference.kind, &reference.namespace).create(&PostParams::default(), &next).await;
    answer.map_err(|error| Error::api(format!("do {reference} again"), error))?;
    Ok(format!("{}/{name} does it again", reference.kind.word()))
}

/// A name for the next attempt: the old one, without the mark of an earlier attempt, and the time.
fn again(name: &str, now: Timestamp) -> String {
    const MARK: &str = "-again-";
    let base = name.rfind(MARK).map_or(name, |at| &name[..at]);
    let base = &base[..base.floor_char_boundary(200)];
    format!("{base}{MARK}{}", now.strftime("%Y%m%d%H%M%S"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_at_an_attempt_does_not_grow_its_name() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(again("nightly", now), "nightly-again-20260102030405");
        assert_eq!(again("nightly-again-20250101000000", now), "nightly-again-20260102030405");
    }
}
