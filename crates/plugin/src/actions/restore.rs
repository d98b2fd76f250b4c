//! An action that sees items on their way back.

use std::ops::Deref;
use std::time::Duration;

use serde_json::Value;

use super::{ASKING, Action, LOOKING};
use crate::Result;
use crate::wire::{
    CANCEL_RESTORE, EXECUTE_RESTORE, EXECUTE_RESTORE_V2, ITEMS_READY, ItemsReadyRequest, OperationProgress,
    OperationRequest, RESTORE_PROGRESS, ResourceIdentifier, RestoreExecuteRequest,
};

/// An action of restores.
#[derive(Clone)]
pub struct RestoreAction(pub(super) Action);

impl Deref for RestoreAction {
    type Target = Action;

    fn deref(&self) -> &Action {
        &self.0
    }
}

/// What it answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RestoreAnswer {
    /// The item as it left it; none if it said nothing.
    pub item: Option<Value>,
    /// What must be restored first.
    pub additional: Vec<ResourceIdentifier>,
    /// Whether the item is left out.
    pub skip: bool,
    /// Names work that goes on in the background.
    pub operation: Option<String>,
    /// Whether the additional items must be ready first, and how long that may take; zero is up to the host.
    pub wait_for_additional: Option<Duration>,
}

impl RestoreAction {
    /// Shows it an item: as the actions before left it, and as it lies in the backup.
    pub async fn execute(&self, item: &Value, from_backup: &Value, restore: &Value) -> Result<RestoreAnswer> {
        let method = if self.is_second_version() { EXECUTE_RESTORE_V2 } else { EXECUTE_RESTORE };
        let request = RestoreExecuteRequest {
            plugin: self.name().to_owned(),
            item: item.to_string().into(),
            restore: restore.to_string().into(),
            item_from_backup: from_backup.to_string().into(),
        };
        let _turn = self.turn.lock().await;
        let answer = self.session.call(method, request, LOOKING).await?;
        let call = method.name();
        let patience = answer.additional_items_ready_timeout.and_then(|limit| Duration::try_from(limit).ok());
        Ok(RestoreAnswer {
            item: self.item(&call, &answer.item)?,
            additional: self.identifiers(&call, answer.additional_items)?,
            skip: answer.skip_restore,
            operation: self.operation(&call, answer.operation_id)?,
            wait_for_additional: answer.wait_for_additional_items.then(|| patience.unwrap_or_default()),
        })
    }

    /// Asks whether the items it wanted to wait for are ready.
    pub async fn items_ready(&self, items: Vec<ResourceIdentifier>, restore: &Value) -> Result<bool> {
        let (plugin, restore) = (self.name().to_owned(), restore.to_string().into());
        let request = ItemsReadyRequest { plugin, restore, additional_items: items };
        Ok(self.session.call(ITEMS_READY, request, LOOKING).await?.ready)
    }

    /// Asks how far work in the background is.
    pub async fn progress(&self, operation: &str, restore: &Value) -> Result<OperationProgress> {
        let answer = self.session.call(RESTORE_PROGRESS, self.about(operation, restore), ASKING).await?;
        answer.progress.ok_or_else(|| self.invalid(&RESTORE_PROGRESS.name(), "it has no progress in it"))
    }

    /// Asks for the end of work in the background.
    pub async fn cancel(&self, operation: &str, restore: &Value) -> Result<()> {
        self.session.call(CANCEL_RESTORE, self.about(operation, restore), LOOKING).await.map(drop)
    }

    fn about(&self, operation: &str, restore: &Value) -> OperationRequest {
        let (plugin, operation_id) = (self.name().to_owned(), operation.to_owned());
        OperationRequest { plugin, operation_id, subject: restore.to_string().into() }
    }
}
