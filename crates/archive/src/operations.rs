//! Asynchronous operations of plugins, as the item-operations files have them.

use serde::{Deserialize, Serialize};

use crate::codec::null_as_default;

/// An operation of a backup.
pub type BackupOperation = Operation<BackupOperationSpec>;
/// An operation of a restore.
pub type RestoreOperation = Operation<RestoreOperationSpec>;

/// What a plugin was asked, and how far it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation<S> {
    /// What it was asked.
    pub spec: S,
    /// How far it is.
    #[serde(default)]
    pub status: OperationStatus,
}

/// See [`BackupOperation`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupOperationSpec {
    /// The backup's name.
    pub backup_name: String,
    /// The backup's uid.
    #[serde(rename = "backupUID")]
    pub backup_uid: String,
    /// The action that started it.
    pub backup_item_action: String,
    /// The item.
    pub resource_identifier: ResourceIdentifier,
    /// The plugin's own name for it.
    #[serde(rename = "operationID")]
    pub operation_id: String,
    /// What to fetch again once it has ended.
    #[serde(deserialize_with = "null_as_default")]
    pub post_operation_items: Vec<ResourceIdentifier>,
}

/// See [`RestoreOperation`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestoreOperationSpec {
    /// The restore's name.
    pub restore_name: String,
    /// The restore's uid.
    #[serde(rename = "restoreUID")]
    pub restore_uid: String,
    /// The action that started it.
    pub restore_item_action: String,
    /// The item.
    pub resource_identifier: ResourceIdentifier,
    /// The plugin's own name for it.
    #[serde(rename = "operationID")]
    pub operation_id: String,
}

/// An item. Its fields are written with capitals: the type they come from never had names for JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ResourceIdentifier {
    /// The API group, empty for the core.
    pub group: String,
    /// The resource, plural.
    pub resource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// How far an operation is. Times are as they came, in RFC 3339.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationStatus {
    /// `New`, `InProgress`, `Completed` or `Failed`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// How much is done.
    #[serde(skip_serializing_if = "is_zero")]
    pub n_completed: i64,
    /// How much there is.
    #[serde(skip_serializing_if = "is_zero")]
    pub n_total: i64,
    /// What is counted: `Bytes`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operation_units: String,
    /// Free text; rate and time left have their place here.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// When it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// When it last said something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
pub(crate) fn is_zero(number: &i64) -> bool {
    *number == 0
}
