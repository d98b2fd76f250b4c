//! An action that sees items on their way into a backup.

use std::ops::Deref;

use serde_json::Value;

use super::{ASKING, Action, LOOKING};
use crate::Result;
use crate::wire::{
    BACKUP_PROGRESS, CANCEL_BACKUP, EXECUTE_BACKUP, EXECUTE_BACKUP_V2, ItemRequest, OperationProgress,
    OperationRequest, ResourceIdentifier,
};

/// An action of backups.
#[derive(Clone)]
pub struct BackupAction(pub(super) Action);

impl Deref for BackupAction {
    type Target = Action;

    fn deref(&self) -> &Action {
        &self.0
    }
}

/// What it answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackupAnswer {
    /// The item as it left it; none if it said nothing.
    pub item: Option<Value>,
    /// What must be in the backup too.
    pub additional: Vec<ResourceIdentifier>,
    /// Names work that goes on in the background.
    pub operation: Option<String>,
    /// What is to be read again, into the backup, once that work is done.
    pub post_operation: Vec<ResourceIdentifier>,
}

impl BackupAction {
    /// Shows it an item.
    pub async fn execute(&self, item: &Value, backup: &Value) -> Result<BackupAnswer> {
        let method = if self.is_second_version() { EXECUTE_BACKUP_V2 } else { EXECUTE_BACKUP };
        let call = method.name();
        let plugin = self.name().to_owned();
        let request = ItemRequest { plugin, item: item.to_string().into(), backup: backup.to_string().into() };
        let _turn = self.turn.lock().await;
        let answer = self.session.call(method, request, LOOKING).await?;
        Ok(BackupAnswer {
            item: self.item(&call, &answer.item)?,
            additional: self.identifiers(&call, answer.additional_items)?,
            operation: self.operation(&call, answer.operation_id)?,
            post_operation: self.identifiers(&call, answer.post_operation_items)?,
        })
    }

    /// Asks how far work in the background is.
    pub async fn progress(&self, operation: &str, backup: &Value) -> Result<OperationProgress> {
        let answer = self.session.call(BACKUP_PROGRESS, self.about(operation, backup), ASKING).await?;
        answer.progress.ok_or_else(|| self.invalid(&BACKUP_PROGRESS.name(), "it has no progress in it"))
    }

    /// Asks for the end of work in the background.
    pub async fn cancel(&self, operation: &str, backup: &Value) -> Result<()> {
        self.session.call(CANCEL_BACKUP, self.about(operation, backup), LOOKING).await.map(drop)
    }

    fn about(&self, operation: &str, backup: &Value) -> OperationRequest {
        let (plugin, operation_id) = (self.name().to_owned(), operation.to_owned());
        OperationRequest { plugin, operation_id, subject: backup.to_string().into() }
    }
}
