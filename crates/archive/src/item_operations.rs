//! Asynchronous operations of plugins: the item-operations files.

use serde::{Deserialize, Serialize};

use crate::codec::null_as_default;

/// An operation of a backup.
pub type BackupItemOperation = ItemOperation<BackupItemOperationSpec>;
/// An operation of a restore.
pub type RestoreItemOperation = ItemOperation<RestoreItemOperationSpec>;

/// An asynchronous operation and its status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemOperation<S> {
    /// The request.
    pub spec: S,
    /// The status.
    #[serde(default)]
    pub status: ItemOperationStatus,
}

/// See [`BackupItemOperation`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupItemOperationSpec {
    /// The backup's name.
    pub backup_name: String,
    /// The backup's uid.
    #[serde(rename = "backupUID")]
    pub backup_uid: String,
    /// The action that started it.
    pub backup_item_action: String,
    /// The item.
    pub resource_identifier: ResourceIdentifier,
    /// The operation id of the plugin.
    #[serde(rename = "operationID")]
    pub operation_id: String,
    /// Items to read again after the operation.
    #[serde(deserialize_with = "null_as_default")]
    pub post_operation_items: Vec<ResourceIdentifier>,
}

/// See [`RestoreItemOperation`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestoreItemOperationSpec {
    /// The restore's name.
    pub restore_name: String,
    /// The restore's uid.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// The action that started it.
    pub restore_item_action: String,
    /// The item.
    pub resource_identifier: ResourceIdentifier,
    /// The operation id of the plugin.
    #[serde(rename = "operationID")]
    pub operation_id: String,
}

/// An item. Its field names are capitalized: the Go type has no JSON tags.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ResourceIdentifier {
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, plural.
    pub resource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// Status of an operation. Times are in RFC 3339, as read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ItemOperationStatus {
    /// `New`, `InProgress`, `Completed` or `Failed`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Completed units.
    #[serde(skip_serializing_if = "is_zero")]
    pub n_completed: i64,
    /// Total units.
    #[serde(skip_serializing_if = "is_zero")]
    pub n_total: i64,
    /// The unit: `Bytes`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operation_units: String,
    /// Free text, such as rate and remaining time.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// When it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// When it was last updated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(crate) fn is_zero(number: &i64) -> bool {
    *number == 0
}
