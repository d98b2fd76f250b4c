//! The engine's ports, filled by plugins.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use plimsoll_engine::backup::actions::{Answer, BackupItemActions, ItemBlockAction, ItemBlockActions, ItemId};
use plimsoll_engine::delete::DeleteItemAction;
use plimsoll_engine::log::Level;
use plimsoll_engine::operations::{Background, Begun};
use plimsoll_engine::ports::{Attention, Supervised};
use plimsoll_engine::registry::{AppliesTo, Registry, Source};
use plimsoll_engine::restore::action::{Identifier, Input, Output, RestoreItemAction};
use plimsoll_engine::restore::actions::Actions;
use plimsoll_engine::{Heard, backup, operations};
use plimsoll_progress::Task;
use plimsoll_select::resources::Lookup;
use serde_json::Value;

use crate::actions::{Action, BackupAction, BlockAction, DeleteAction, PluginActions, RestoreAction};
use crate::logs::{Gravity, LogLine, LogSink};
use crate::progress::Watch;
use crate::wire::{OperationProgress, ResourceIdentifier, ResourceSelector};
use crate::{Error, Result};

impl From<Error> for plimsoll_engine::Error {
    fn from(error: Error) -> Self {
        Self::Plugin { reason: error.reason(), message: error.to_string() }
    }
}

/// Log lines of plugins as lines of the operation they work for.
pub struct OperationLines(pub Arc<Heard>);

impl LogSink for OperationLines {
    fn line(&self, line: &LogLine) {
        let level = match line.gravity {
            Gravity::Debug => return,
            Gravity::Info => Level::Info,
            Gravity::Warning => Level::Warning,
            Gravity::Error => Level::Error,
        };
        self.0.line(level, line.text());
    }
}

/// Each of these returns what is wrong with the actions that could not be registered.
impl PluginActions {
    /// Registers the actions of backups.
    pub async fn register_backup(
        &self,
        registry: &mut BackupItemActions,
        lookup: &(impl Lookup + ?Sized),
    ) -> Vec<String> {
        register(self.backup(), registry, lookup, |action| Arc::new(BackupPort::new(action))).await
    }

    /// Registers the actions that say which items of a backup belong together.
    pub async fn register_blocks(
        &self,
        registry: &mut ItemBlockActions,
        lookup: &(impl Lookup + ?Sized),
    ) -> Vec<String> {
        register(self.block(), registry, lookup, |action| Arc::new(action)).await
    }

    /// Registers the actions of restores.
    pub async fn register_restore(&self, registry: &mut Actions, lookup: &(impl Lookup + ?Sized)) -> Vec<String> {
        register(self.restore(), registry, lookup, |action| Arc::new(RestorePort::new(action))).await
    }

    /// Registers the actions of deletions.
    pub async fn register_delete(
        &self,
        registry: &mut Registry<dyn DeleteItemAction>,
        lookup: &(impl Lookup + ?Sized),
    ) -> Vec<String> {
        register(self.delete(), registry, lookup, |action| Arc::new(action)).await
    }
}

/// Asks each action what it applies to, and registers it behind its port. One that does not answer costs the others nothing.
async fn register<A, P>(
    actions: impl Iterator<Item = A>,
    registry: &mut Registry<P>,
    lookup: &(impl Lookup + ?Sized),
    port: fn(A) -> Arc<P>,
) -> Vec<String>
where
    A: Deref<Target = Action>,
    P: ?Sized,
{
    let mut problems = Vec::new();
    for action in actions {
        let done = match action.applies_to().await {
            Ok(wanted) => {
                let (source, name) = place(&action);
                registry.register(source, &name, &applies(wanted), lookup, port(action))
            }
            Err(error) => Err(error.into()),
        };
        problems.extend(done.err().map(|error| error.to_string()));
    }
    problems
}

fn place(action: &Action) -> (Source, String) {
    (Source::Plugin(action.binary().clone()), action.name().to_owned())
}

fn applies(wanted: ResourceSelector) -> AppliesTo {
    AppliesTo {
        included_namespaces: wanted.included_namespaces,
        excluded_namespaces: wanted.excluded_namespaces,
        included_resources: wanted.included_resources,
        excluded_resources: wanted.excluded_resources,
        selector: wanted.selector,
    }
}

fn group_resource(item: &ResourceIdentifier) -> String {
    if item.group.is_empty() { item.resource.clone() } else { format!("{}.{}", item.resource, item.group) }
}

fn item_id(item: &ResourceIdentifier) -> ItemId {
    let namespace = Some(item.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    ItemId::new(&group_resource(item), namespace, &item.name)
}

fn identifier(item: &ResourceIdentifier) -> Identifier {
    let ItemId { group_resource, namespace, name } = item_id(item);
    Identifier { group_resource, namespace, name }
}

fn wire_identifier(item: &Identifier) -> ResourceIdentifier {
    let (resource, group) = item.group_resource.split_once('.').unwrap_or((&item.group_resource, ""));
    ResourceIdentifier {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: item.namespace.clone().unwrap_or_default(),
        name: item.name.clone(),
    }
}

/// What has been believed so far, for each piece of work.
#[derive(Default)]
struct Watches(Mutex<HashMap<String, Watch>>);

impl Watches {
    fn read(&self, operation: &str, report: &OperationProgress) -> operations::Reading {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (reading, fault) = all.entry(operation.to_owned()).or_default().read(report);
        let fault = fault.map(|fault| format!("{}: operation {operation}: {fault}", fault.reason()));
        if let Some(fault) = &fault {
            tracing::warn!("{fault}");
        }
        operations::Reading {
            completed: reading.completed,
            error: reading.error,
            done: reading.done,
            total: reading.total,
            units: reading.units,
            description: reading.description,
            started: reading.started,
            updated: reading.updated,
            fault,
        }
    }
}

struct BackupPort {
    action: BackupAction,
    watches: Watches,
}

impl BackupPort {
    fn new(action: BackupAction) -> Self {
        Self { action, watches: Watches::default() }
    }

    async fn ask(&self, item: &Value, backup: &Value) -> Result<Answer> {
        let answer = self.action.execute(item, backup).await?;
        let post = answer.post_operation.iter().map(item_id).collect();
        Ok(Answer {
            item: answer.item.filter(|changed| changed != item),
            additional: answer.additional.iter().map(item_id).collect(),
            operation: answer.operation.map(|id| Begun { id, post }),
        })
    }
}

impl backup::actions::BackupItemAction for BackupPort {
    fn execute<'a>(
        &'a self,
        item: &'a Value,
        backup: &'a Value,
    ) -> BoxFuture<'a, Result<Answer, plimsoll_engine::Error>> {
        Box::pin(async move { Ok(self.ask(item, backup).await?) })
    }

    fn background(self: Arc<Self>) -> Option<Arc<dyn Background>> {
        Some(self)
    }

    fn process(&self) -> Option<&dyn Supervised> {
        let action: &Action = &self.action;
        Some(action)
    }
}

impl Supervised for Action {
    fn observe(&self, task: &Task) -> Attention {
        Box::new(self.session().observe(task))
    }
}

impl ItemBlockAction for BlockAction {
    fn related<'a>(&'a self, item: &'a Value, backup: &'a Value) -> Asked<'a, Vec<ItemId>> {
        Box::pin(async move { Ok(BlockAction::related(self, item, backup).await?.iter().map(item_id).collect()) })
    }

    fn process(&self) -> Option<&dyn Supervised> {
        let action: &Action = self;
        Some(action)
    }
}

type Asked<'a, T> = BoxFuture<'a, Result<T, plimsoll_engine::Error>>;

impl Background for BackupPort {
    fn progress<'a>(&'a self, operation: &'a str, backup: &'a Value) -> Asked<'a, operations::Reading> {
        Box::pin(async move { Ok(self.watches.read(operation, &self.action.progress(operation, backup).await?)) })
    }

    fn cancel<'a>(&'a self, operation: &'a str, backup: &'a Value) -> Asked<'a, ()> {
        Box::pin(async move { Ok(self.action.cancel(operation, backup).await?) })
    }

    fn process(&self) -> Option<&dyn Supervised> {
        let action: &Action = &self.action;
        Some(action)
    }
}

struct RestorePort {
    action: RestoreAction,
    watches: Watches,
}

impl RestorePort {
    fn new(action: RestoreAction) -> Self {
        Self { action, watches: Watches::default() }
    }
}

impl RestoreItemAction for RestorePort {
    fn execute<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Result<Output, String>> {
        Box::pin(async move {
            let answer = self.action.execute(&input.item, input.from_backup, input.restore).await;
            let answer = answer.map_err(|error| error.to_string())?;
            Ok(Output {
                item: answer.item.unwrap_or(input.item),
                additional: answer.additional.iter().map(identifier).collect(),
                skip: answer.skip,
                operation: answer.operation,
                wait_for_additional: answer.wait_for_additional,
                warnings: Vec::new(),
            })
        })
    }

    fn background(self: Arc<Self>) -> Option<Arc<dyn Background>> {
        Some(self)
    }

    fn process(&self) -> Option<&dyn Supervised> {
        let action: &Action = &self.action;
        Some(action)
    }

    fn additional_ready<'a>(
        &'a self,
        additional: &'a [Identifier],
        restore: &'a Value,
    ) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            let items = additional.iter().map(wire_identifier).collect();
            self.action.items_ready(items, restore).await.map_err(|error| error.to_string())
        })
    }
}

impl Background for RestorePort {
    fn progress<'a>(&'a self, operation: &'a str, restore: &'a Value) -> Asked<'a, operations::Reading> {
        Box::pin(async move { Ok(self.watches.read(operation, &self.action.progress(operation, restore).await?)) })
    }

    fn cancel<'a>(&'a self, operation: &'a str, restore: &'a Value) -> Asked<'a, ()> {
        Box::pin(async move { Ok(self.action.cancel(operation, restore).await?) })
    }

    fn process(&self) -> Option<&dyn Supervised> {
        let action: &Action = &self.action;
        Some(action)
    }
}

impl DeleteItemAction for DeleteAction {
    fn execute<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move { DeleteAction::execute(self, item, backup).await.map_err(|error| error.to_string()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_keep_group_and_the_absence_of_a_namespace() {
        let wire = ResourceIdentifier {
            group: "apps".into(),
            resource: "deployments".into(),
            namespace: String::new(),
            name: "x".into(),
        };
        let id = identifier(&wire);
        assert_eq!((id.group_resource.as_str(), id.namespace.as_deref()), ("deployments.apps", None));
        assert_eq!(wire_identifier(&id), wire);
    }
}
