//! Client of a DeleteItemAction.

use std::ops::Deref;

use serde_json::Value;

use super::{EXECUTE_TIMEOUT, ItemActionClient};
use crate::Result;
use crate::wire::{EXECUTE_DELETE, ItemRequest};

/// A DeleteItemAction of a plugin.
#[derive(Clone)]
pub struct DeleteItemActionClient(pub(super) ItemActionClient);

impl Deref for DeleteItemActionClient {
    type Target = ItemActionClient;

    fn deref(&self) -> &ItemActionClient {
        &self.0
    }
}

impl DeleteItemActionClient {
    /// Executes the action on an item.
    pub async fn execute(&self, item: &Value, backup: &Value) -> Result<()> {
        let plugin = self.name().to_owned();
        let request = ItemRequest { plugin, item: item.to_string().into(), backup: backup.to_string().into() };
        let _guard = self.execute_lock.lock().await;
        self.session.call(EXECUTE_DELETE, request, EXECUTE_TIMEOUT).await.map(drop)
    }
}
