//! The files of a restore in the location.

use plimsoll_archive::layout;
use plimsoll_archive::volume_info::RestoreVolumeInfo;
use plimsoll_progress::Task;
use plimsoll_store::Store;
use serde_json::Value;

use crate::Error;
use crate::operation_files::OperationFiles;
use crate::outcome::RecordedFiles;
use crate::ports::LeadershipGuard;

/// Writes the files. Files of unsupported data are empty. A second call replaces them.
pub(super) async fn save(
    store: &Store,
    name: &str,
    recorded: &RecordedFiles,
    volumes: &[RestoreVolumeInfo],
    task: &Task,
    guard: &dyn LeadershipGuard,
) -> Result<(), Error> {
    let volumes = if volumes.is_empty() { Value::Null } else { serde_json::json!(volumes) };
    OperationFiles::default()
        .json(layout::restore_results(name), &recorded.results)?
        .json(layout::restore_item_operations(name), &Value::Null)?
        .json(layout::restore_volume_info(name), &volumes)?
        .spooled(layout::restore_resource_list(name), &recorded.resource_list)
        .spooled(layout::restore_outcome(name), &recorded.outcome)
        .spooled(layout::restore_log(name), &recorded.log)
        .write(store, task, guard)
        .await
}
