//! The backup item action for claims.

use std::sync::Arc;

use futures::future::BoxFuture;
use plimsoll_api::labels;
use plimsoll_engine::Error;
use plimsoll_engine::backup::actions::{BackupActionOutput, BackupItemAction, ItemId};
use plimsoll_engine::item_operations::{ItemOperationClient, ItemOperationProgress, StartedOperation};
use serde_json::Value;

use super::{ClaimResult, CsiBackup};
use crate::csi::snapshot_taker::CreatedSnapshot;
use crate::csi::upload::Upload;
use crate::csi::{CLASSES, CONTENTS, SNAPSHOT_NAME, SNAPSHOTS, UPLOAD_NAME, UPLOADS, set_metadata};

/// Takes the snapshot of a claim.
pub(super) struct ClaimAction(pub Arc<CsiBackup>);

fn with_snapshot(mut item: Value, made: &CreatedSnapshot) -> BackupActionOutput {
    set_metadata(&mut item, "labels", SNAPSHOT_NAME, &labels::valid_name(&made.name));
    set_metadata(&mut item, "annotations", SNAPSHOT_NAME, &made.name);
    set_metadata(&mut item, "annotations", labels::MUST_INCLUDE_ADDITIONAL_ITEMS, "true");
    let snapshot = ItemId::new(SNAPSHOTS, Some(&made.namespace), &made.name);
    let content = ItemId::new(CONTENTS, None, &made.taken.content);
    let class = ItemId::new(CLASSES, None, &made.class);
    let operation = Some(StartedOperation { id: made.operation(), post: vec![snapshot.clone(), content.clone()] });
    BackupActionOutput { item: Some(item), additional: vec![snapshot, content, class], operation }
}

fn with_upload(mut item: Value, upload: &Upload) -> BackupActionOutput {
    set_metadata(&mut item, "labels", SNAPSHOT_NAME, &labels::valid_name(&upload.snapshot));
    set_metadata(&mut item, "annotations", SNAPSHOT_NAME, &upload.snapshot);
    set_metadata(&mut item, "annotations", UPLOAD_NAME, &format!("{}/{}", upload.namespace, upload.name));
    let post = vec![ItemId::new(UPLOADS, Some(&upload.namespace), &upload.name)];
    let operation = Some(StartedOperation { id: upload.operation.clone(), post });
    BackupActionOutput { item: Some(item), additional: Vec::new(), operation }
}

impl BackupItemAction for ClaimAction {
    fn execute<'a>(&'a self, item: &'a Value, _: &'a Value) -> BoxFuture<'a, Result<BackupActionOutput, Error>> {
        Box::pin(async move {
            // The sender is part of this object, so this does not fail.
            let _ = self.0.pods_read.subscribe().wait_for(|read| *read).await;
            Ok(match self.0.snapshot_claim(item).await? {
                Some(ClaimResult::Snapshot(made)) => with_snapshot(item.clone(), &made),
                Some(ClaimResult::Upload(upload)) => with_upload(item.clone(), &upload),
                None => BackupActionOutput::default(),
            })
        })
    }

    fn operation_client(self: Arc<Self>) -> Option<Arc<dyn ItemOperationClient>> {
        Some(self)
    }
}

impl ItemOperationClient for ClaimAction {
    fn progress<'a>(&'a self, operation: &'a str, _: &'a Value) -> BoxFuture<'a, Result<ItemOperationProgress, Error>> {
        Box::pin(async move {
            match &self.0.uploads {
                Some(uploads) => uploads.read(operation).await,
                None => self.0.ready(operation).await,
            }
        })
    }

    /// Cancels data movement. Snapshots are deleted with the failed backup.
    fn cancel<'a>(&'a self, operation: &'a str, _: &'a Value) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            match &self.0.uploads {
                Some(uploads) => uploads.cancel(operation).await,
                None => Ok(()),
            }
        })
    }

    /// A new leader finds the same snapshot, and the same upload, by its name.
    fn resumes_operations(&self) -> bool {
        true
    }
}
