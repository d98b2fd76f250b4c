//! The files of a backup in its location.

use futures::TryStreamExt;
use plimsoll_archive::layout;
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_store::Store;

use crate::ports::LeadershipGuard;
use crate::{Error, RetryPolicy, kill};

/// Deletes all files of a backup, the metadata before all others. A second call continues an interrupted deletion.
pub(super) async fn remove_files(
    store: &Store,
    name: &str,
    task: &Task,
    guard: &dyn LeadershipGuard,
) -> Result<(), Error> {
    let (folder, first) = (layout::backup_directory(name), layout::backup_metadata(name));
    let list = || async { Ok(store.list(&folder).map_ok(|info| info.key).try_collect::<Vec<_>>().await?) };
    let mut keys = RetryPolicy::default().run(task, list).await?;
    keys.sort_by_key(|key| (*key != first, key.clone()));
    let steps = task.meter(Unit::Steps);
    steps.set_total(Total::Final(keys.len() as u64));
    for key in keys {
        guard.check_effect()?;
        task.say(&key);
        kill::point("object.delete.before");
        RetryPolicy::default().run(task, || async { Ok(store.delete(&key).await?) }).await?;
        kill::point("object.delete.after");
        steps.add(1);
    }
    Ok(())
}
