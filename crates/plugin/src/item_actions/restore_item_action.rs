//! Client of a RestoreItemAction.

use std::ops::Deref;
use std::time::Duration;

use serde_json::Value;

use super::{EXECUTE_TIMEOUT, ItemActionClient, PROGRESS_TIMEOUT};
use crate::Result;
use crate::wire::{
    CANCEL_RESTORE, EXECUTE_RESTORE, EXECUTE_RESTORE_V2, ITEMS_READY, ItemsReadyRequest, OperationProgress,
    OperationRequest, RESTORE_PROGRESS, ResourceIdentifier, RestoreExecuteRequest,
};

/// A RestoreItemAction of a plugin.
#[derive(Clone)]
pub struct RestoreItemActionClient(pub(super) ItemActionClient);

impl Deref for RestoreItemActionClient {
    type Target = ItemActionClient;

    fn deref(&self) -> &ItemActionClient {
        &self.0
    }
}

/// The output of `Execute`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RestoreItemActionOutput {
    /// The modified item; `None` if unchanged.
    pub item: Option<Value>,
    /// Additional items to restore first.
    pub additional: Vec<ResourceIdentifier>,
    /// Whether the item is skipped.
    pub skip: bool,
    /// Id of an asynchronous operation.
    pub operation: Option<String>,
    /// Set if the additional items must be ready first: the timeout; zero means the default of the server.
    pub wait_for_additional: Option<Duration>,
}

impl RestoreItemActionClient {
    /// Executes the action on an item: as previous actions modified it, and as stored in the backup.
    pub async fn execute(&self, item: &Value, from_backup: &Value, restore: &Value) -> Result<RestoreItemActionOutput> {
        let method = if self.is_v2() { EXECUTE_RESTORE_V2 } else { EXECUTE_RESTORE };
        let request = RestoreExecuteRequest {
            plugin: self.name().to_owned(),
            item: item.to_string().into(),
            restore: restore.to_string().into(),
            item_from_backup: from_backup.to_string().into(),
        };
        let _guard = self.execute_lock.lock().await;
        let response = self.session.call(method, request, EXECUTE_TIMEOUT).await?;
        let call = method.name();
        let timeout = response.additional_items_ready_timeout.and_then(|limit| Duration::try_from(limit).ok());
        Ok(RestoreItemActionOutput {
            item: self.parse_item(&call, &response.item)?,
            additional: self.check_identifiers(&call, response.additional_items)?,
            skip: response.skip_restore,
            operation: self.check_operation_id(&call, response.operation_id)?,
            wait_for_additional: response.wait_for_additional_items.then(|| timeout.unwrap_or_default()),
        })
    }

    /// Whether the additional items are ready.
    pub async fn items_ready(&self, items: Vec<ResourceIdentifier>, restore: &Value) -> Result<bool> {
        let (plugin, restore) = (self.name().to_owned(), restore.to_string().into());
        let request = ItemsReadyRequest { plugin, restore, additional_items: items };
        Ok(self.session.call(ITEMS_READY, request, EXECUTE_TIMEOUT).await?.ready)
    }

    /// The progress of an asynchronous operation.
    pub async fn progress(&self, operation: &str, restore: &Value) -> Result<OperationProgress> {
        let response =
            self.session.call(RESTORE_PROGRESS, self.operation_request(operation, restore), PROGRESS_TIMEOUT).await?;
        response.progress.ok_or_else(|| self.invalid(&RESTORE_PROGRESS.name(), "progress is missing"))
    }

    /// Cancels an asynchronous operation.
    pub async fn cancel(&self, operation: &str, restore: &Value) -> Result<()> {
        self.session.call(CANCEL_RESTORE, self.operation_request(operation, restore), EXECUTE_TIMEOUT).await.map(drop)
    }

    fn operation_request(&self, operation: &str, restore: &Value) -> OperationRequest {
        let (plugin, operation_id) = (self.name().to_owned(), operation.to_owned());
        OperationRequest { plugin, operation_id, subject: restore.to_string().into() }
    }
}
