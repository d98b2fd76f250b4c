//! The files a restore leaves in the location.

use plimsoll_archive::layout;
use plimsoll_archive::volume_info::RestoreVolumeInfo;
use plimsoll_progress::Task;
use plimsoll_store::Store;
use serde_json::Value;

use crate::Error;
use crate::files::Files;
use crate::outcome::Recorded;
use crate::ports::Guard;

/// Writes them; those of what this version does not restore are empty. Doing it again replaces them.
pub async fn save(
    store: &Store,
    name: &str,
    recorded: &Recorded,
    volumes: &[RestoreVolumeInfo],
    task: &Task,
    guard: &dyn Guard,
) -> Result<(), Error> {
    let volumes = if volumes.is_empty() { Value::Null } else { serde_json::json!(volumes) };
    Files::default()
        .json(layout::restore_results(name), &recorded.results)?
        .json(layout::restore_item_operations(name), &Value::Null)?
        .json(layout::restore_volume_info(name), &volumes)?
        .spooled(layout::restore_resource_list(name), &recorded.resource_list)
        .spooled(layout::restore_outcome(name), &recorded.outcome)
        .spooled(layout::restore_log(name), &recorded.log)
        .write(store, task, guard)
        .await
}
