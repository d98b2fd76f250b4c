//! Client of an ItemBlockAction.

use std::ops::Deref;

use serde_json::Value;

use super::{EXECUTE_TIMEOUT, ItemActionClient};
use crate::Result;
use crate::wire::{ItemRequest, RELATED_ITEMS, ResourceIdentifier};

/// An ItemBlockAction of a plugin.
#[derive(Clone)]
pub struct ItemBlockActionClient(pub(super) ItemActionClient);

impl Deref for ItemBlockActionClient {
    type Target = ItemActionClient;

    fn deref(&self) -> &ItemActionClient {
        &self.0
    }
}

impl ItemBlockActionClient {
    /// The related items of an item.
    pub async fn related(&self, item: &Value, backup: &Value) -> Result<Vec<ResourceIdentifier>> {
        let plugin = self.name().to_owned();
        let request = ItemRequest { plugin, item: item.to_string().into(), backup: backup.to_string().into() };
        let _guard = self.execute_lock.lock().await;
        let response = self.session.call(RELATED_ITEMS, request, EXECUTE_TIMEOUT).await?;
        self.check_identifiers(&RELATED_ITEMS.name(), response.related_items)
    }
}
