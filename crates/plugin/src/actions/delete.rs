//! An action that sees the items of a backup that is deleted.

use std::ops::Deref;

use serde_json::Value;

use super::{Action, LOOKING};
use crate::Result;
use crate::wire::{EXECUTE_DELETE, ItemRequest};

/// An action of deletions.
#[derive(Clone)]
pub struct DeleteAction(pub(super) Action);

impl Deref for DeleteAction {
    type Target = Action;

    fn deref(&self) -> &Action {
        &self.0
    }
}

impl DeleteAction {
    /// Shows it an item.
    pub async fn execute(&self, item: &Value, backup: &Value) -> Result<()> {
        let plugin = self.name().to_owned();
        let request = ItemRequest { plugin, item: item.to_string().into(), backup: backup.to_string().into() };
        let _turn = self.turn.lock().await;
        self.session.call(EXECUTE_DELETE, request, LOOKING).await.map(drop)
    }
}
