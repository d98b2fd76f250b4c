//! An action that says which items belong together.

use std::ops::Deref;

use serde_json::Value;

use super::{Action, LOOKING};
use crate::Result;
use crate::wire::{ItemRequest, RELATED_ITEMS, ResourceIdentifier};

/// An action that finds related items.
#[derive(Clone)]
pub struct BlockAction(pub(super) Action);

impl Deref for BlockAction {
    type Target = Action;

    fn deref(&self) -> &Action {
        &self.0
    }
}

impl BlockAction {
    /// What belongs to an item.
    pub async fn related(&self, item: &Value, backup: &Value) -> Result<Vec<ResourceIdentifier>> {
        let plugin = self.name().to_owned();
        let request = ItemRequest { plugin, item: item.to_string().into(), backup: backup.to_string().into() };
        let _turn = self.turn.lock().await;
        let answer = self.session.call(RELATED_ITEMS, request, LOOKING).await?;
        self.identifiers(&RELATED_ITEMS.name(), answer.related_items)
    }
}
