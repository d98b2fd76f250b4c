//! Client of a BackupItemAction.

use std::ops::Deref;

use serde_json::Value;

use super::{EXECUTE_TIMEOUT, ItemActionClient, PROGRESS_TIMEOUT};
use crate::Result;
use crate::wire::{
    BACKUP_PROGRESS, CANCEL_BACKUP, EXECUTE_BACKUP, EXECUTE_BACKUP_V2, ItemRequest, OperationProgress,
    OperationRequest, ResourceIdentifier,
};

/// A BackupItemAction of a plugin.
#[derive(Clone)]
pub struct BackupItemActionClient(pub(super) ItemActionClient);

impl Deref for BackupItemActionClient {
    type Target = ItemActionClient;

    fn deref(&self) -> &ItemActionClient {
        &self.0
    }
}

/// The output of `Execute`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackupItemActionOutput {
    /// The modified item; `None` if unchanged.
    pub item: Option<Value>,
    /// Additional items to back up.
    pub additional: Vec<ResourceIdentifier>,
    /// Id of an asynchronous operation.
    pub operation: Option<String>,
    /// Items to read again after the operation.
    pub post_operation: Vec<ResourceIdentifier>,
}

impl BackupItemActionClient {
    /// Executes the action on an item.
    pub async fn execute(&self, item: &Value, backup: &Value) -> Result<BackupItemActionOutput> {
        let method = if self.is_v2() { EXECUTE_BACKUP_V2 } else { EXECUTE_BACKUP };
        let call = method.name();
        let plugin = self.name().to_owned();
        let request = ItemRequest { plugin, item: item.to_string().into(), backup: backup.to_string().into() };
        let _guard = self.execute_lock.lock().await;
        let response = self.session.call(method, request, EXECUTE_TIMEOUT).await?;
        Ok(BackupItemActionOutput {
            item: self.parse_item(&call, &response.item)?,
            additional: self.check_identifiers(&call, response.additional_items)?,
            operation: self.check_operation_id(&call, response.operation_id)?,
            post_operation: self.check_identifiers(&call, response.post_operation_items)?,
        })
    }

    /// The progress of an asynchronous operation.
    pub async fn progress(&self, operation: &str, backup: &Value) -> Result<OperationProgress> {
        let response =
            self.session.call(BACKUP_PROGRESS, self.operation_request(operation, backup), PROGRESS_TIMEOUT).await?;
        response.progress.ok_or_else(|| self.invalid(&BACKUP_PROGRESS.name(), "progress is missing"))
    }

    /// Cancels an asynchronous operation.
    pub async fn cancel(&self, operation: &str, backup: &Value) -> Result<()> {
        self.session.call(CANCEL_BACKUP, self.operation_request(operation, backup), EXECUTE_TIMEOUT).await.map(drop)
    }

    fn operation_request(&self, operation: &str, backup: &Value) -> OperationRequest {
        let (plugin, operation_id) = (self.name().to_owned(), operation.to_owned());
        OperationRequest { plugin, operation_id, subject: backup.to_string().into() }
    }
}
