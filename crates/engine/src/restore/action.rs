//! Restore item actions: the interface of built-in actions and plugins.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

pub use crate::backup::actions::ItemId;
use crate::item_operations::ItemOperationClient;
use crate::ports::SupervisedProcess;

/// Input of a restore item action.
#[derive(Debug)]
pub struct RestoreActionInput<'a> {
    /// The item as the previous actions left it: without status and identity, in its original namespace.
    pub item: Value,
    /// The item as it is in the backup.
    pub from_backup: &'a Value,
    /// The Restore object.
    pub restore: &'a Value,
}

/// Output of a restore item action.
#[derive(Debug, Default, PartialEq)]
pub struct RestoreActionOutput {
    /// The item, changed or not.
    pub item: Value,
    /// Additional items of the backup, which are restored first.
    pub additional: Vec<ItemId>,
    /// Whether the item is skipped.
    pub skip: bool,
    /// ID of an item operation that the action started.
    pub operation: Option<String>,
    /// Timeout for the additional items to be ready before the item is created; `None` means no wait, zero the default of
    /// the restore.
    pub wait_for_additional: Option<Duration>,
    /// Warnings of the restore.
    pub warnings: Vec<String>,
}

impl RestoreActionOutput {
    /// Only the item.
    pub fn of(item: Value) -> Self {
        Self { item, ..Self::default() }
    }
}

/// The resources whose objects an action may add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdditionalResources {
    /// No resources.
    None,
    /// These resources.
    Only(&'static [&'static str]),
    /// Any resource: plugins.
    Any,
}

/// Changes items of a restore. Its name and the items it applies to are set when it is registered.
///
/// # Guarantees
/// An action is executed once for each item and attempt, and for several items in parallel. An error fails the item, not the
/// restore.
pub trait RestoreItemAction: Send + Sync {
    /// Changes one item.
    fn execute<'a>(&'a self, input: RestoreActionInput<'a>) -> BoxFuture<'a, Result<RestoreActionOutput, String>>;

    /// The resources it may add. The total may grow as long as such actions have to run.
    fn additional_resources(&self) -> AdditionalResources {
        AdditionalResources::Any
    }

    /// The client for the operations that it starts.
    fn operation_client(self: Arc<Self>) -> Option<Arc<dyn ItemOperationClient>> {
        None
    }

    /// The process of the action, if it is not this one.
    fn process(&self) -> Option<&dyn SupervisedProcess> {
        None
    }

    /// Whether the additional items are ready; called only if `wait_for_additional` is set.
    fn additional_ready<'a>(
        &'a self,
        additional: &'a [ItemId],
        restore: &'a Value,
    ) -> BoxFuture<'a, Result<bool, String>> {
        let _ = (additional, restore);
        Box::pin(async { Ok(true) })
    }
}
