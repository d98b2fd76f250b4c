//! Deletion of a backup and of all that belongs to it.
//!
//! Every step can be repeated. The location is emptied before the custom resources are deleted, so that an interrupted
//! deletion is resumed and nothing is synced back.

mod env;
mod execute;
mod item_actions;
mod location_files;
mod proof;
mod records;

use futures::future::BoxFuture;
use serde_json::Value;

pub use self::env::{DeleteEnv, DeleteExtensions, DeletionCause};
pub use self::execute::{DeleteOutcome, execute};
use crate::registry::Registry;

/// Cleans up external data of an item before its backup is deleted.
pub trait DeleteItemAction: Send + Sync {
    /// Whether it deletes something outside of the location. Such an action is not run on the items of an expired backup without
    /// a proof that this cluster made it.
    fn is_external(&self) -> bool {
        true
    }
    /// Cleans up for one item. On an error the backup is kept.
    fn execute<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<(), String>>;
}

/// The delete item actions.
pub type DeleteItemActions = Registry<dyn DeleteItemAction>;
