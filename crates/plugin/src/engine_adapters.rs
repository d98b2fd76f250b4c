//! Adapters from plugins to the interfaces of the engine.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use plimsoll_engine::backup::actions::{
    BackupActionOutput, BackupItemActions, ItemBlockAction, ItemBlockActions, ItemId,
};
use plimsoll_engine::delete::DeleteItemAction;
use plimsoll_engine::item_operations::{ItemOperationClient, StartedOperation};
use plimsoll_engine::log::Level;
use plimsoll_engine::ports::{ObservationGuard, SupervisedProcess};
use plimsoll_engine::registry::{AppliesTo, Registry, Source};
use plimsoll_engine::restore::action::{RestoreActionInput, RestoreActionOutput, RestoreItemAction};
use plimsoll_engine::restore::actions::Actions;
use plimsoll_engine::{PluginLogSink, backup, item_operations};
use plimsoll_progress::Task;
use plimsoll_select::resources::ResourceMapper;
use serde_json::Value;

use crate::item_actions::{
    BackupItemActionClient, DeleteItemActionClient, ItemActionClient, ItemBlockActionClient, PluginActions,
    RestoreItemActionClient,
};
use crate::log_sink::{LogLevel, LogLine, LogSink};
use crate::progress::ProgressTracker;
use crate::wire::{OperationProgress, ResourceIdentifier, ResourceSelector};
use crate::{Error, Result};

impl From<Error> for plimsoll_engine::Error {
    fn from(error: Error) -> Self {
        Self::Plugin { reason: error.reason(), message: error.to_string() }
    }
}

/// Writes the log lines of plugins to the log of an operation.
pub struct OperationLogSink(pub Arc<PluginLogSink>);

impl LogSink for OperationLogSink {
    fn line(&self, line: &LogLine) {
        let level = match line.level {
            LogLevel::Debug => return,
            LogLevel::Info => Level::Info,
            LogLevel::Warning => Level::Warning,
            LogLevel::Error => Level::Error,
        };
        self.0.line(level, line.text());
    }
}

/// Each function returns the errors of the actions that could not be registered.
impl PluginActions {
    /// Registers the BackupItemActions.
    pub async fn register_backup(
        &self,
        registry: &mut BackupItemActions,
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Vec<String> {
        register(self.backup(), registry, mapper, |action| Arc::new(BackupItemActionAdapter::new(action))).await
    }

    /// Registers the ItemBlockActions.
    pub async fn register_blocks(
        &self,
        registry: &mut ItemBlockActions,
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Vec<String> {
        register(self.block(), registry, mapper, |action| Arc::new(action)).await
    }

    /// Registers the RestoreItemActions.
    pub async fn register_restore(
        &self,
        registry: &mut Actions,
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Vec<String> {
        register(self.restore(), registry, mapper, |action| Arc::new(RestoreItemActionAdapter::new(action))).await
    }

    /// Registers the DeleteItemActions.
    pub async fn register_delete(
        &self,
        registry: &mut Registry<dyn DeleteItemAction>,
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Vec<String> {
        register(self.delete(), registry, mapper, |action| Arc::new(action)).await
    }
}

/// Calls `AppliesTo` of each action and registers its adapter. An action that fails does not affect the others.
async fn register<A, P>(
    actions: impl Iterator<Item = A>,
    registry: &mut Registry<P>,
    mapper: &(impl ResourceMapper + ?Sized),
    adapter: fn(A) -> Arc<P>,
) -> Vec<String>
where
    A: Deref<Target = ItemActionClient>,
    P: ?Sized,
{
    let mut errors = Vec::new();
    for action in actions {
        let done = match action.applies_to().await {
            Ok(selector) => {
                let (source, name) = source_and_name(&action);
                registry.register(source, &name, &applies_to_selector(selector), mapper, adapter(action))
            }
            Err(error) => Err(error.into()),
        };
        errors.extend(done.err().map(|error| error.to_string()));
    }
    errors
}

fn source_and_name(action: &ItemActionClient) -> (Source, String) {
    (Source::Plugin(action.binary().clone()), action.name().to_owned())
}

fn applies_to_selector(selector: ResourceSelector) -> AppliesTo {
    AppliesTo {
        included_namespaces: selector.included_namespaces,
        excluded_namespaces: selector.excluded_namespaces,
        included_resources: selector.included_resources,
        excluded_resources: selector.excluded_resources,
        selector: selector.selector,
    }
}

fn group_resource(item: &ResourceIdentifier) -> String {
    if item.group.is_empty() { item.resource.clone() } else { format!("{}.{}", item.resource, item.group) }
}

fn item_id(item: &ResourceIdentifier) -> ItemId {
    let namespace = Some(item.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    ItemId::new(&group_resource(item), namespace, &item.name)
}

fn wire_identifier(item: &ItemId) -> ResourceIdentifier {
    let (resource, group) = item.group_resource.split_once('.').unwrap_or((&item.group_resource, ""));
    ResourceIdentifier {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: item.namespace.clone().unwrap_or_default(),
        name: item.name.clone(),
    }
}

/// The progress of each asynchronous operation.
#[derive(Default)]
struct ProgressTrackers(Mutex<HashMap<String, ProgressTracker>>);

impl ProgressTrackers {
    fn read(&self, operation: &str, report: &OperationProgress) -> item_operations::ItemOperationProgress {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (progress, progress_error) = all.entry(operation.to_owned()).or_default().read(report);
        let progress_error = progress_error
            .map(|progress_error| format!("{}: operation {operation}: {progress_error}", progress_error.reason()));
        if let Some(progress_error) = &progress_error {
            tracing::warn!("{progress_error}");
        }
        item_operations::ItemOperationProgress { fault: progress_error, ..progress }
    }
}

struct BackupItemActionAdapter {
    action: BackupItemActionClient,
    trackers: ProgressTrackers,
}

impl BackupItemActionAdapter {
    fn new(action: BackupItemActionClient) -> Self {
        Self { action, trackers: ProgressTrackers::default() }
    }

    async fn execute_action(&self, item: &Value, backup: &Value) -> Result<BackupActionOutput> {
        let answer = self.action.execute(item, backup).await?;
        let post = answer.post_operation.iter().map(item_id).collect();
        Ok(BackupActionOutput {
            item: answer.item.filter(|changed| changed != item),
            additional: answer.additional.iter().map(item_id).collect(),
            operation: answer.operation.map(|id| StartedOperation { id, post }),
        })
    }
}

impl backup::actions::BackupItemAction for BackupItemActionAdapter {
    fn execute<'a>(
        &'a self,
        item: &'a Value,
        backup: &'a Value,
    ) -> BoxFuture<'a, Result<BackupActionOutput, plimsoll_engine::Error>> {
        Box::pin(async move { Ok(self.execute_action(item, backup).await?) })
    }

    fn operation_client(self: Arc<Self>) -> Option<Arc<dyn ItemOperationClient>> {
        Some(self)
    }

    fn process(&self) -> Option<&dyn SupervisedProcess> {
        let action: &ItemActionClient = &self.action;
        Some(action)
    }
}

impl SupervisedProcess for ItemActionClient {
    fn observe(&self, task: &Task) -> ObservationGuard {
        Box::new(self.session().observe(task))
    }
}

impl ItemBlockAction for ItemBlockActionClient {
    fn related<'a>(&'a self, item: &'a Value, backup: &'a Value) -> EngineFuture<'a, Vec<ItemId>> {
        Box::pin(
            async move { Ok(ItemBlockActionClient::related(self, item, backup).await?.iter().map(item_id).collect()) },
        )
    }

    fn process(&self) -> Option<&dyn SupervisedProcess> {
        let action: &ItemActionClient = self;
        Some(action)
    }
}

type EngineFuture<'a, T> = BoxFuture<'a, Result<T, plimsoll_engine::Error>>;

impl ItemOperationClient for BackupItemActionAdapter {
    fn progress<'a>(
        &'a self,
        operation: &'a str,
        backup: &'a Value,
    ) -> EngineFuture<'a, item_operations::ItemOperationProgress> {
        Box::pin(async move { Ok(self.trackers.read(operation, &self.action.progress(operation, backup).await?)) })
    }

    fn cancel<'a>(&'a self, operation: &'a str, backup: &'a Value) -> EngineFuture<'a, ()> {
        Box::pin(async move { Ok(self.action.cancel(operation, backup).await?) })
    }

    fn process(&self) -> Option<&dyn SupervisedProcess> {
        let action: &ItemActionClient = &self.action;
        Some(action)
    }
}

struct RestoreItemActionAdapter {
    action: RestoreItemActionClient,
    trackers: ProgressTrackers,
}

impl RestoreItemActionAdapter {
    fn new(action: RestoreItemActionClient) -> Self {
        Self { action, trackers: ProgressTrackers::default() }
    }
}

impl RestoreItemAction for RestoreItemActionAdapter {
    fn execute<'a>(&'a self, input: RestoreActionInput<'a>) -> BoxFuture<'a, Result<RestoreActionOutput, String>> {
        Box::pin(async move {
            let answer = self.action.execute(&input.item, input.from_backup, input.restore).await;
            let answer = answer.map_err(|error| error.to_string())?;
            Ok(RestoreActionOutput {
                item: answer.item.unwrap_or(input.item),
                additional: answer.additional.iter().map(item_id).collect(),
                skip: answer.skip,
                operation: answer.operation,
                wait_for_additional: answer.wait_for_additional,
                warnings: Vec::new(),
            })
        })
    }

    fn operation_client(self: Arc<Self>) -> Option<Arc<dyn ItemOperationClient>> {
        Some(self)
    }

    fn process(&self) -> Option<&dyn SupervisedProcess> {
        let action: &ItemActionClient = &self.action;
        Some(action)
    }

    fn additional_ready<'a>(
        &'a self,
        additional: &'a [ItemId],
        restore: &'a Value,
    ) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            let items = additional.iter().map(wire_identifier).collect();
            self.action.items_ready(items, restore).await.map_err(|error| error.to_string())
        })
    }
}

impl ItemOperationClient for RestoreItemActionAdapter {
    fn progress<'a>(
        &'a self,
        operation: &'a str,
        restore: &'a Value,
    ) -> EngineFuture<'a, item_operations::ItemOperationProgress> {
        Box::pin(async move { Ok(self.trackers.read(operation, &self.action.progress(operation, restore).await?)) })
    }

    fn cancel<'a>(&'a self, operation: &'a str, restore: &'a Value) -> EngineFuture<'a, ()> {
        Box::pin(async move { Ok(self.action.cancel(operation, restore).await?) })
    }

    fn process(&self) -> Option<&dyn SupervisedProcess> {
        let action: &ItemActionClient = &self.action;
        Some(action)
    }
}

impl DeleteItemAction for DeleteItemActionClient {
    fn execute<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(
            async move { DeleteItemActionClient::execute(self, item, backup).await.map_err(|error| error.to_string()) },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_preserve_group_and_missing_namespace() {
        let wire = ResourceIdentifier {
            group: "apps".into(),
            resource: "deployments".into(),
            namespace: String::new(),
            name: "x".into(),
        };
        let id = item_id(&wire);
        assert_eq!((id.group_resource.as_str(), id.namespace.as_deref()), ("deployments.apps", None));
        assert_eq!(wire_identifier(&id), wire);
    }
}
