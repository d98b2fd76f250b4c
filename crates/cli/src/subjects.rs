//! Objects as the command line sees them: one shape for every kind.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use plimsoll_api::plimsoll::v1alpha1::Operation;
use plimsoll_progress::{Counts, Snapshot, Total, Unit};
use serde_json::{Value, json};

use crate::args::names::{Kind, Reference, Targets};
use crate::exit::{Outcome, Usage};

/// An object as it was read and, if it is carried out, its Operation.
#[derive(Clone, Debug)]
pub struct Seen {
    pub kind: Kind,
    pub object: Value,
    pub operation: Option<Operation>,
}

impl Seen {
    /// Without its Operation.
    pub fn new(kind: Kind, object: &DynamicObject) -> anyhow::Result<Self> {
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

    /// Its phase; `New` before anybody has looked at it.
    pub fn phase(&self) -> &str {
        let (pointer, new) =
            if self.kind == Kind::Action { ("/status/state", "pending") } else { ("/status/phase", "New") };
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
        let pointer = if self.kind == Kind::Action { "/status/error/message" } else { "/status/failureReason" };
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

/// Reads one of them, with its Operation.
pub async fn read(client: &Client, namespace: &str, reference: &Reference) -> anyhow::Result<Seen> {
    let (kind, name) = (reference.kind, &reference.name);
    let what = || format!("cannot read {} {name}", kind.word());
    let Some(object) = kind.api(client, namespace).get_opt(name).await.with_context(what)? else {
        bail!(
            "there is no {word} {name} in namespace {namespace}: `plimsoll get {word}s` lists them",
            word = kind.word()
        )
    };
    let mut seen = Seen::new(kind, &object)?;
    if kind.is_carried_out() {
        seen.operation = operation_of(client, namespace, &seen).await?;
    }
    Ok(seen)
}

/// The name of the Operation of a subject.
pub fn operation_name(reference: &Reference) -> String {
    plimsoll_operations::operation_name(reference.kind.verb(), &reference.name)
}

async fn operation_of(client: &Client, namespace: &str, seen: &Seen) -> anyhow::Result<Option<Operation>> {
    let name = operation_name(&seen.reference());
    let api: Api<Operation> = Api::namespaced(client.clone(), namespace);
    let operation = match api.get_opt(&name).await {
        Ok(operation) => operation,
        // An unchanged Velero has no such kind, and not everybody may read it.
        Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read operation {name}")),
    };
    let uid = seen.text("/metadata/uid");
    Ok(operation.filter(|op| op.spec.subject.as_ref().and_then(|subject| subject.uid.as_deref()) == uid))
}

/// The named ones, or all that the selector chooses, oldest first.
pub async fn list(
    client: &Client,
    namespace: &str,
    targets: &Targets,
    selector: Option<&str>,
) -> anyhow::Result<Vec<Seen>> {
    let kind = targets.kind;
    if !targets.names.is_empty() {
        if selector.is_some() {
            bail!(Usage("give names or a selector, not both".into()));
        }
        let mut found = Vec::new();
        for name in &targets.names {
            found.push(read(client, namespace, &Reference { kind, name: name.clone() }).await?);
        }
        return Ok(found);
    }
    let parameters = selector.map_or_else(ListParams::default, |selector| ListParams::default().labels(selector));
    let listed = kind.api(client, namespace).list(&parameters).await;
    let mut objects = listed.with_context(|| format!("cannot list {}s in namespace {namespace}", kind.word()))?.items;
    objects.sort_by_key(|object| (object.creation_timestamp().map(|time| time.0), object.name_any()));
    objects.iter().map(|object| Seen::new(kind, object)).collect()
}

/// The named ones, or with `all` or a selector as many as there are; to do something with them that one would not do by accident.
pub async fn choose(
    client: &Client,
    namespace: &str,
    targets: &Targets,
    all: bool,
    selector: Option<&str>,
) -> anyhow::Result<Vec<Seen>> {
    let ways = usize::from(all) + usize::from(selector.is_some()) + usize::from(!targets.names.is_empty());
    if ways != 1 {
        bail!(Usage(format!("say which {}s: names, --selector or --all, and only one of these", targets.kind.word())));
    }
    list(client, namespace, targets, selector).await
}
