//! Objects of all kinds in one representation, with their Operations.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use plimsoll_api::plimsoll::v1alpha1::Operation;
use plimsoll_progress::{Counts, Snapshot, Total, Unit};
use serde_json::{Value, json};

use crate::args::names::{Reference, ResourceKind, Targets};
use crate::errors::{Hint, UsageError};
use crate::exit::Outcome;

/// An object, and the Operation that executes it.
#[derive(Clone, Debug)]
pub struct Subject {
    pub kind: ResourceKind,
    pub object: Value,
    pub operation: Option<Operation>,
}

impl Subject {
    /// Without its Operation.
    pub fn new(kind: ResourceKind, object: &DynamicObject) -> anyhow::Result<Self> {
        let mut value = serde_json::to_value(object)?;
        let resource = kind.resource();
        // Items of a list may lack them.
        value["apiVersion"] = json!(resource.api_version);
        value["kind"] = json!(resource.kind);
        Ok(Self { kind, object: value, operation: None })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name").unwrap_or_default()
    }

    /// How it is referred to.
    pub fn reference(&self) -> Reference {
        Reference { kind: self.kind, name: self.name().to_owned() }
    }

    /// Its phase; `New` as long as it has none.
    pub fn phase(&self) -> &str {
        let (pointer, new) =
            if self.kind == ResourceKind::Action { ("/status/state", "pending") } else { ("/status/phase", "New") };
        self.text(pointer).filter(|phase| !phase.is_empty()).unwrap_or(new)
    }

    /// A text of the object.
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.object.pointer(pointer).and_then(Value::as_str)
    }

    /// A number of the object.
    pub fn number(&self, pointer: &str) -> u64 {
        self.object.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
    }

    /// A list of texts of the object.
    pub fn texts(&self, pointer: &str) -> Vec<String> {
        let items = self.object.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// A map of texts of the object.
    pub fn map(&self, pointer: &str) -> BTreeMap<String, String> {
        let fields = self.object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
        fields.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }

    /// Why it failed.
    pub fn failure(&self) -> Option<&str> {
        let pointer = if self.kind == ResourceKind::Action { "/status/error/message" } else { "/status/failureReason" };
        self.text(pointer).filter(|text| !text.is_empty())
    }

    /// How it ended, if it has.
    pub fn outcome(&self) -> Option<Outcome> {
        // Of an action it is a sentence that begins so.
        let cancelled = self.failure().is_some_and(|why| why.starts_with("Cancelled"));
        match self.phase() {
            "Completed" | "complete" => Some(Outcome::Success),
            "PartiallyFailed" => Some(Outcome::PartiallyFailed),
            "FailedValidation" => Some(Outcome::Refused),
            "Failed" | "failed" if cancelled => Some(Outcome::Cancelled),
            "Failed" | "failed" => Some(Outcome::Failed),
            _ => None,
        }
    }

    /// Items, from its own fields: at most a second old while it runs.
    pub fn items(&self) -> Counts {
        let field = |name: &str| self.number(&format!("/status/progress/{name}"));
        let percent = self.text("/status/plimsoll/percent");
        let total = self.object.pointer("/status/progress/totalItems").and_then(Value::as_u64);
        let total = match (total, percent.is_some_and(|text| text.starts_with(['~', '≥']))) {
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
        .covered()
    }

    /// The tree, as the leader last wrote it.
    pub fn tree(&self) -> Option<Snapshot> {
        let tree = self.operation.as_ref()?.status.as_ref()?.tree.clone()?;
        serde_json::from_value(tree).ok()
    }
}

/// Reads one of them, with its Operation.
pub async fn read(client: &Client, namespace: &str, reference: &Reference) -> anyhow::Result<Subject> {
    let (kind, name) = (reference.kind, &reference.name);
    let object = match kind.api(client, namespace).get(name).await {
        Err(error) if is_missing(&error) => {
            let command = format!("plimsoll get {}s -n {namespace}", kind.word());
            return Err(error).context(Hint(format!("list the {}s that exist with `{command}`", kind.word())));
        }
        object => object?,
    };
    let mut subject = Subject::new(kind, &object)?;
    if kind.is_operation() {
        subject.operation = operation_of(client, namespace, &subject).await?;
    }
    Ok(subject)
}

/// Whether the API server has no such object.
pub fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// The name of the Operation of a subject.
pub fn operation_name(reference: &Reference) -> String {
    plimsoll_operations::operation_name(reference.kind.verb(), &reference.name)
}

async fn operation_of(client: &Client, namespace: &str, subject: &Subject) -> anyhow::Result<Option<Operation>> {
    let name = operation_name(&subject.reference());
    let api: Api<Operation> = Api::namespaced(client.clone(), namespace);
    let operation = match api.get_opt(&name).await {
        Ok(operation) => operation,
        // An unchanged Velero has no such kind, and the user may not be allowed to read it.
        Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => None,
        Err(error) => return Err(error.into()),
    };
    let uid = subject.text("/metadata/uid");
    Ok(operation.filter(|op| op.spec.subject.as_ref().and_then(|subject| subject.uid.as_deref()) == uid))
}

/// The named objects, or those that match the selector, oldest first.
pub async fn list(
    client: &Client,
    namespace: &str,
    targets: &Targets,
    selector: Option<&str>,
) -> anyhow::Result<Vec<Subject>> {
    let kind = targets.kind;
    if !targets.names.is_empty() {
        if selector.is_some() {
            bail!(UsageError("pass names or --selector, not both".into()));
        }
        let mut found = Vec::new();
        for name in &targets.names {
            found.push(read(client, namespace, &Reference { kind, name: name.clone() }).await?);
        }
        return Ok(found);
    }
    let parameters = selector.map_or_else(ListParams::default, |selector| ListParams::default().labels(selector));
    let mut objects = kind.api(client, namespace).list(&parameters).await?.items;
    objects.sort_by_key(|object| (object.creation_timestamp().map(|time| time.0), object.name_any()));
    objects.iter().map(|object| Subject::new(kind, object)).collect()
}

/// The named objects, all, or those that match a selector, for commands that change objects: the choice must be explicit.
pub async fn choose(
    client: &Client,
    namespace: &str,
    targets: &Targets,
    all: bool,
    selector: Option<&str>,
) -> anyhow::Result<Vec<Subject>> {
    let ways = usize::from(all) + usize::from(selector.is_some()) + usize::from(!targets.names.is_empty());
    if ways != 1 {
        bail!(UsageError(format!(
            "pass the names of {}s, --selector or --all; exactly one of these",
            targets.kind.word()
        )));
    }
    list(client, namespace, targets, selector).await
}
