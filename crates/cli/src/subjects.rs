//! Backups and restores as the command line sees them: one shape for both.

use anyhow::{Context, bail};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::plimsoll::v1alpha1::Operation;
use plimsoll_api::velero::v1::{Backup, Restore};
use plimsoll_progress::{Counts, Snapshot, Total, Unit};
use serde_json::Value;

use crate::args::{Kind, Reference};
use crate::exit::Outcome;

impl Kind {
    /// How it is called in text.
    pub fn word(self) -> &'static str {
        match self {
            Self::Backup => "backup",
            Self::Restore => "restore",
        }
    }

    /// Which of its counters is the good one.
    fn done_field(self) -> &'static str {
        match self {
            Self::Backup => "itemsBackedUp",
            Self::Restore => "itemsRestored",
        }
    }

    /// What its items are once they are done.
    pub fn done_word(self) -> &'static str {
        match self {
            Self::Backup => "backed up",
            Self::Restore => "restored",
        }
    }
}

/// A backup or restore and its Operation, as they were read.
#[derive(Clone, Debug)]
pub struct Seen {
    pub kind: Kind,
    pub object: Value,
    pub operation: Option<Operation>,
}

impl Seen {
    /// Its name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name").unwrap_or_default()
    }

    /// Its phase; `New` before anybody has looked at it.
    pub fn phase(&self) -> &str {
        self.text("/status/phase").filter(|phase| !phase.is_empty()).unwrap_or("New")
    }

    /// A text of the object.
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.object.pointer(pointer).and_then(Value::as_str)
    }

    /// A number of the object.
    pub fn number(&self, pointer: &str) -> u64 {
        self.object.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
    }

    /// How it ended, if it has.
    pub fn outcome(&self) -> Option<Outcome> {
        let cancelled = self.text("/status/failureReason") == Some("Cancelled");
        match self.phase() {
            "Completed" => Some(Outcome::Success),
            "PartiallyFailed" => Some(Outcome::PartiallyFailed),
            "FailedValidation" => Some(Outcome::Refused),
            "Failed" if cancelled => Some(Outcome::Cancelled),
            "Failed" => Some(Outcome::Failed),
            _ => None,
        }
    }

    /// Items, from its own fields: at most a second old while it runs.
    pub fn items(&self) -> Counts {
        let field = |name: &str| self.number(&format!("/status/progress/{name}"));
        let percent = self.text("/status/plimsoll/percent");
        let total = self.object.pointer("/status/progress/totalItems").and_then(Value::as_u64);
        let total = match (total, percent.is_some_and(|text| text.starts_with('~'))) {
            (None, _) => Total::Unknown,
            (Some(total), true) => Total::Growing(total),
            (Some(total), false) => Total::Final(total),
        };
        Counts {
            done: field(self.kind.done_field()),
            skipped: field("itemsSkipped"),
            failed: field("itemsFailed"),
            total,
            ..Counts::zero(Unit::Items)
        }
    }

    /// The tree, as the leader last wrote it.
    pub fn tree(&self) -> Option<Snapshot> {
        let tree = self.operation.as_ref()?.status.as_ref()?.tree.clone()?;
        serde_json::from_value(tree).ok()
    }
}

/// Reads one of them.
pub async fn read(client: &Client, namespace: &str, reference: &Reference) -> anyhow::Result<Seen> {
    let Some(seen) = read_opt(client, namespace, reference).await? else {
        bail!(
            "there is no {kind} {name} in namespace {namespace}: `plimsoll get {kind}s` lists them",
            kind = reference.kind.word(),
            name = reference.name
        )
    };
    Ok(seen)
}

async fn read_opt(client: &Client, namespace: &str, reference: &Reference) -> anyhow::Result<Option<Seen>> {
    let what = || format!("cannot read {} {}", reference.kind.word(), reference.name);
    let object = match reference.kind {
        Kind::Backup => Api::<Backup>::namespaced(client.clone(), namespace)
            .get_opt(&reference.name)
            .await
            .with_context(what)?
            .map(serde_json::to_value)
            .transpose()?,
        Kind::Restore => Api::<Restore>::namespaced(client.clone(), namespace)
            .get_opt(&reference.name)
            .await
            .with_context(what)?
            .map(serde_json::to_value)
            .transpose()?,
    };
    let Some(object) = object else { return Ok(None) };
    let operation = operation_of(client, namespace, reference, &object).await?;
    Ok(Some(Seen { kind: reference.kind, object, operation }))
}

/// The name of the Operation of a subject.
pub fn operation_name(reference: &Reference) -> String {
    plimsoll_controllers::operation_name(reference.kind.word(), &reference.name)
}

async fn operation_of(
    client: &Client,
    namespace: &str,
    reference: &Reference,
    object: &Value,
) -> anyhow::Result<Option<Operation>> {
    let name = operation_name(reference);
    let api: Api<Operation> = Api::namespaced(client.clone(), namespace);
    let operation = match api.get_opt(&name).await {
        Ok(operation) => operation,
        // An unchanged Velero has no such kind, and not everybody may read it.
        Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read operation {name}")),
    };
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
    Ok(operation.filter(|op| op.spec.subject.as_ref().and_then(|subject| subject.uid.as_deref()) == uid))
}

/// Lists all of a kind, or the named ones.
pub async fn list(client: &Client, namespace: &str, kind: Kind, names: &[String]) -> anyhow::Result<Vec<Seen>> {
    if !names.is_empty() {
        let mut found = Vec::new();
        for name in names {
            found.push(read(client, namespace, &Reference { kind, name: name.clone() }).await?);
        }
        return Ok(found);
    }
    let what = || format!("cannot list {}s in namespace {namespace}", kind.word());
    let all = ListParams::default();
    let mut objects: Vec<Value> = match kind {
        Kind::Backup => {
            let list = Api::<Backup>::namespaced(client.clone(), namespace).list(&all).await.with_context(what)?;
            list.items.iter().map(serde_json::to_value).collect::<Result<_, _>>()?
        }
        Kind::Restore => {
            let list = Api::<Restore>::namespaced(client.clone(), namespace).list(&all).await.with_context(what)?;
            list.items.iter().map(serde_json::to_value).collect::<Result<_, _>>()?
        }
    };
    objects.sort_by_key(|object| object.pointer("/metadata/creationTimestamp").map(ToString::to_string));
    Ok(objects.into_iter().map(|object| Seen { kind, object, operation: None }).collect())
}

/// Lists operations.
pub async fn operations(client: &Client, namespace: &str, names: &[String]) -> anyhow::Result<Vec<Operation>> {
    let api: Api<Operation> = Api::namespaced(client.clone(), namespace);
    let list = api.list(&ListParams::default()).await.context("cannot list operations")?;
    Ok(list.items.into_iter().filter(|op| names.is_empty() || names.contains(&op.name_any())).collect())
}
