//! Clients of the item actions of plugins.

mod backup_item_action;
mod delete_item_action;
mod item_block_action;
mod restore_item_action;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub use backup_item_action::{BackupItemActionClient, BackupItemActionOutput};
pub use delete_item_action::DeleteItemActionClient;
pub use item_block_action::ItemBlockActionClient;
pub use restore_item_action::{RestoreItemActionClient, RestoreItemActionOutput};

use crate::log_sink::LogSink;
use crate::registry::{PluginKind, PluginRegistry, RegisteredPlugin};
use crate::sanitize::sanitize_to;
use crate::session::{InitCall, Session};
use crate::wire::{
    AppliesToRequest, AppliesToResponse, BACKUP_APPLIES_TO, BACKUP_APPLIES_TO_V2, BLOCK_APPLIES_TO, DELETE_APPLIES_TO,
    Method, RESTORE_APPLIES_TO, RESTORE_APPLIES_TO_V2, ResourceIdentifier, ResourceSelector,
};
use crate::{Error, Result};

/// Timeout of `Execute` and `AppliesTo`. Velero has no timeout; a plugin that hangs would block the backup forever.
const EXECUTE_TIMEOUT: Duration = Duration::from_mins(10);
/// Timeout of `Progress`.
pub(crate) const PROGRESS_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of items in a response.
const MAX_ITEMS: usize = 10_000;

/// An item action of a plugin in one operation.
#[derive(Clone)]
pub struct ItemActionClient {
    session: Arc<Session>,
    plugin_info: RegisteredPlugin,
    /// Velero calls an action for one item at a time; plugins rely on it.
    execute_lock: Arc<tokio::sync::Mutex<()>>,
}

impl ItemActionClient {
    /// The registered name.
    pub fn name(&self) -> &str {
        &self.plugin_info.name
    }

    /// The binary.
    pub fn binary(&self) -> &PathBuf {
        &self.plugin_info.binary
    }

    /// The session of its process.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The resources that the action applies to.
    pub async fn applies_to(&self) -> Result<ResourceSelector> {
        let Some(method) = applies_to_method(self.plugin_info.kind) else { return Ok(ResourceSelector::default()) };
        let request = AppliesToRequest { plugin: self.plugin_info.name.clone() };
        let response = self.session.call(method, request, EXECUTE_TIMEOUT).await?;
        Ok(response.resource_selector.unwrap_or_default())
    }

    fn is_v2(&self) -> bool {
        matches!(self.plugin_info.kind, PluginKind::BackupItemActionV2 | PluginKind::RestoreItemActionV2)
    }

    fn invalid(&self, call: &str, detail: impl Into<String>) -> Error {
        Error::ResponseInvalid { plugin: self.plugin_info.name.clone(), call: call.to_owned(), detail: detail.into() }
    }

    /// Parses an item of a response; `None` if it is unchanged.
    fn parse_item(&self, call: &str, bytes: &[u8]) -> Result<Option<Value>> {
        if bytes.is_empty() || bytes == b"null" {
            return Ok(None);
        }
        match serde_json::from_slice::<Value>(bytes) {
            Ok(item) if item.is_object() => Ok(Some(item)),
            Ok(_) => Err(self.invalid(call, "item is not an object")),
            Err(error) => Err(self.invalid(call, format!("item is not valid JSON: {error}"))),
        }
    }

    fn check_identifiers(&self, call: &str, items: Vec<ResourceIdentifier>) -> Result<Vec<ResourceIdentifier>> {
        if items.len() > MAX_ITEMS {
            return Err(self.invalid(call, format!("{} items, at most {MAX_ITEMS} are allowed", items.len())));
        }
        let is_valid = |item: &ResourceIdentifier| {
            let valid = |text: &str| text.len() <= 253 && !text.contains(char::is_control);
            !item.resource.is_empty()
                && !item.name.is_empty()
                && [&item.group, &item.resource, &item.namespace, &item.name].into_iter().all(|text| valid(text))
        };
        match items.iter().find(|item| !is_valid(item)) {
            Some(item) => Err(self.invalid(call, format!("invalid item identifier {:?}", sanitize_to(&item.name, 60)))),
            None => Ok(items),
        }
    }

    fn check_operation_id(&self, call: &str, id: String) -> Result<Option<String>> {
        match id.as_str() {
            "" => Ok(None),
            id if id.len() > 1024 || id.contains(char::is_control) => Err(self.invalid(call, "invalid operation id")),
            _ => Ok(Some(id)),
        }
    }
}

/// The `AppliesTo` method of a kind.
fn applies_to_method(kind: PluginKind) -> Option<Method<AppliesToRequest, AppliesToResponse>> {
    match kind {
        PluginKind::BackupItemAction => Some(BACKUP_APPLIES_TO),
        PluginKind::BackupItemActionV2 => Some(BACKUP_APPLIES_TO_V2),
        PluginKind::RestoreItemAction => Some(RESTORE_APPLIES_TO),
        PluginKind::RestoreItemActionV2 => Some(RESTORE_APPLIES_TO_V2),
        PluginKind::DeleteItemAction => Some(DELETE_APPLIES_TO),
        PluginKind::ItemBlockAction => Some(BLOCK_APPLIES_TO),
        PluginKind::ObjectStore | PluginKind::VolumeSnapshotter => None,
    }
}

/// The item actions for one operation: one process for each binary, started at the first call.
pub struct PluginActions {
    actions: Vec<ItemActionClient>,
}

impl PluginActions {
    /// The actions of a backup.
    pub fn for_backup(registry: &PluginRegistry, logs: &Arc<dyn LogSink>) -> Self {
        Self::of(
            registry,
            &[PluginKind::BackupItemAction, PluginKind::BackupItemActionV2, PluginKind::ItemBlockAction],
            logs,
        )
    }

    /// The actions of a restore.
    pub fn for_restore(registry: &PluginRegistry, logs: &Arc<dyn LogSink>) -> Self {
        Self::of(registry, &[PluginKind::RestoreItemAction, PluginKind::RestoreItemActionV2], logs)
    }

    /// The actions of a deletion.
    pub fn for_deletion(registry: &PluginRegistry, logs: &Arc<dyn LogSink>) -> Self {
        Self::of(registry, &[PluginKind::DeleteItemAction], logs)
    }

    fn of(registry: &PluginRegistry, kinds: &[PluginKind], logs: &Arc<dyn LogSink>) -> Self {
        let mut init_calls = BTreeMap::<&PathBuf, Vec<InitCall>>::new();
        for plugin_info in registry.of_kinds(kinds) {
            let init_call =
                applies_to_method(plugin_info.kind).map(|method| InitCall::AppliesTo(method, plugin_info.name.clone()));
            init_calls.entry(&plugin_info.binary).or_default().extend(init_call);
        }
        let sessions: BTreeMap<_, _> = init_calls
            .into_iter()
            .map(|(binary, init_calls)| (binary, registry.session(binary, Arc::clone(logs), init_calls)))
            .collect();
        let action = |plugin_info: &RegisteredPlugin| {
            let session = Arc::clone(sessions.get(&plugin_info.binary)?);
            Some(ItemActionClient { session, plugin_info: plugin_info.clone(), execute_lock: Arc::default() })
        };
        Self { actions: registry.of_kinds(kinds).filter_map(action).collect() }
    }

    /// The BackupItemActions, in order.
    pub fn backup(&self) -> impl Iterator<Item = BackupItemActionClient> {
        let kinds = [PluginKind::BackupItemAction, PluginKind::BackupItemActionV2];
        self.actions
            .iter()
            .filter(move |action| kinds.contains(&action.plugin_info.kind))
            .cloned()
            .map(BackupItemActionClient)
    }

    /// The RestoreItemActions, in order.
    pub fn restore(&self) -> impl Iterator<Item = RestoreItemActionClient> {
        let kinds = [PluginKind::RestoreItemAction, PluginKind::RestoreItemActionV2];
        self.actions
            .iter()
            .filter(move |action| kinds.contains(&action.plugin_info.kind))
            .cloned()
            .map(RestoreItemActionClient)
    }

    /// The DeleteItemActions, in order.
    pub fn delete(&self) -> impl Iterator<Item = DeleteItemActionClient> {
        let matching = |action: &&ItemActionClient| action.plugin_info.kind == PluginKind::DeleteItemAction;
        self.actions.iter().filter(matching).cloned().map(DeleteItemActionClient)
    }

    /// The ItemBlockActions, in order.
    pub fn block(&self) -> impl Iterator<Item = ItemBlockActionClient> {
        let matching = |action: &&ItemActionClient| action.plugin_info.kind == PluginKind::ItemBlockAction;
        self.actions.iter().filter(matching).cloned().map(ItemBlockActionClient)
    }

    /// Stops the processes.
    pub async fn close(&self) {
        let mut closed: Vec<&Arc<Session>> = Vec::new();
        for action in &self.actions {
            if !closed.iter().any(|session| Arc::ptr_eq(session, &action.session)) {
                action.session.close().await;
                closed.push(&action.session);
            }
        }
    }
}
