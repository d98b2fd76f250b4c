//! BackupItemAction, RestoreItemAction, DeleteItemAction and ItemBlockAction.
//!
//! The messages of v1 are those of v2 without the newer fields, so both use the same structs.

use prost::Message;

use super::{Empty, Method, OperationProgress, ResourceIdentifier, ResourceSelector, plugin_requests};

#[derive(Clone, PartialEq, Eq, Message)]
pub struct AppliesToRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct AppliesToResponse {
    #[prost(message, optional, tag = "1")]
    pub resource_selector: Option<ResourceSelector>,
}

/// An item and the Backup, both as JSON, for BackupItemAction, DeleteItemAction and ItemBlockAction.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ItemRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(bytes = "vec", tag = "2")]
    pub item: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub backup: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct BackupExecuteResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub item: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub additional_items: Vec<ResourceIdentifier>,
    #[prost(string, tag = "3")]
    pub operation_id: String,
    #[prost(message, repeated, tag = "4")]
    pub post_operation_items: Vec<ResourceIdentifier>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RestoreExecuteRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(bytes = "vec", tag = "2")]
    pub item: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub restore: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub item_from_backup: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RestoreExecuteResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub item: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub additional_items: Vec<ResourceIdentifier>,
    #[prost(bool, tag = "3")]
    pub skip_restore: bool,
    #[prost(string, tag = "4")]
    pub operation_id: String,
    #[prost(bool, tag = "5")]
    pub wait_for_additional_items: bool,
    #[prost(message, optional, tag = "6")]
    pub additional_items_ready_timeout: Option<prost_types::Duration>,
}

/// An asynchronous operation and the Backup or Restore as JSON, for Progress and Cancel.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OperationRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(string, tag = "2")]
    pub operation_id: String,
    #[prost(bytes = "vec", tag = "3")]
    pub subject: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ProgressResponse {
    #[prost(message, optional, tag = "1")]
    pub progress: Option<OperationProgress>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ItemsReadyRequest {
    #[prost(string, tag = "1")]
    pub plugin: String,
    #[prost(bytes = "vec", tag = "2")]
    pub restore: Vec<u8>,
    #[prost(message, repeated, tag = "3")]
    pub additional_items: Vec<ResourceIdentifier>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ItemsReadyResponse {
    #[prost(bool, tag = "1")]
    pub ready: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct RelatedItemsResponse {
    #[prost(message, repeated, tag = "1")]
    pub related_items: Vec<ResourceIdentifier>,
}

type AppliesTo = Method<AppliesToRequest, AppliesToResponse>;
type Execute = Method<ItemRequest, BackupExecuteResponse>;
type ExecuteRestore = Method<RestoreExecuteRequest, RestoreExecuteResponse>;
type Progress = Method<OperationRequest, ProgressResponse>;
type Cancel = Method<OperationRequest, Empty>;

pub const BACKUP_APPLIES_TO: AppliesTo = Method::new("/generated.BackupItemAction/AppliesTo");
pub const EXECUTE_BACKUP: Execute = Method::new("/generated.BackupItemAction/Execute");

pub const BACKUP_APPLIES_TO_V2: AppliesTo = Method::new("/v2.BackupItemAction/AppliesTo");
pub const EXECUTE_BACKUP_V2: Execute = Method::new("/v2.BackupItemAction/Execute");
pub const BACKUP_PROGRESS: Progress = Method::new("/v2.BackupItemAction/Progress");
pub const CANCEL_BACKUP: Cancel = Method::new("/v2.BackupItemAction/Cancel");

pub const RESTORE_APPLIES_TO: AppliesTo = Method::new("/generated.RestoreItemAction/AppliesTo");
pub const EXECUTE_RESTORE: ExecuteRestore = Method::new("/generated.RestoreItemAction/Execute");

pub const RESTORE_APPLIES_TO_V2: AppliesTo = Method::new("/v2.RestoreItemAction/AppliesTo");
pub const EXECUTE_RESTORE_V2: ExecuteRestore = Method::new("/v2.RestoreItemAction/Execute");
pub const RESTORE_PROGRESS: Progress = Method::new("/v2.RestoreItemAction/Progress");
pub const CANCEL_RESTORE: Cancel = Method::new("/v2.RestoreItemAction/Cancel");
pub const ITEMS_READY: Method<ItemsReadyRequest, ItemsReadyResponse> =
    Method::new("/v2.RestoreItemAction/AreAdditionalItemsReady");

pub const DELETE_APPLIES_TO: AppliesTo = Method::new("/generated.DeleteItemAction/AppliesTo");
pub const EXECUTE_DELETE: Method<ItemRequest, Empty> = Method::new("/generated.DeleteItemAction/Execute");

pub const BLOCK_APPLIES_TO: AppliesTo = Method::new("/v1.ItemBlockAction/AppliesTo");
pub const RELATED_ITEMS: Method<ItemRequest, RelatedItemsResponse> = Method::new("/v1.ItemBlockAction/GetRelatedItems");

plugin_requests!(AppliesToRequest, ItemRequest, RestoreExecuteRequest, OperationRequest, ItemsReadyRequest);
