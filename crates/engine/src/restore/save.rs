//! The files a restore leaves in the location.

use bytes::Bytes;
use plimsoll_archive::{codec, layout};
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_store::Store;
use serde_json::Value;

use crate::backup::upload_file;
use crate::outcome::Recorded;
use crate::ports::Guard;
use crate::{Error, kill};

/// Writes them. Doing it again replaces them.
pub async fn save(store: &Store, name: &str, recorded: &Recorded, task: &Task, guard: &dyn Guard) -> Result<(), Error> {
    let gzip =
        |value: &Value| codec::gzip_json(value).map_err(|source| Error::Archive { name: name.to_owned(), source });
    let results = serde_json::to_value(&recorded.results).unwrap_or_default();
    let small: Vec<(String, Bytes)> = vec![
        (layout::restore_results(name), gzip(&results)?.into()),
        (layout::restore_item_operations(name), gzip(&Value::Null)?.into()),
        (layout::restore_volume_info(name), gzip(&Value::Null)?.into()),
    ];
    let spooled = [
        (layout::restore_resource_list(name), recorded.resource_list.as_path()),
        (layout::restore_outcome(name), recorded.outcome.as_path()),
        (layout::restore_log(name), recorded.log.as_path()),
    ];
    let steps = task.meter(Unit::Steps);
    steps.set_total(Total::Final((small.len() + spooled.len()) as u64));
    for (key, content) in small {
        guard.effect()?;
        task.say(&key);
        kill::point("restore.file.before");
        store.put(&key, content).await?;
        kill::point("restore.file.after");
        steps.add(1);
    }
    for (key, path) in spooled {
        guard.effect()?;
        task.say(&key);
        upload_file(store, &key, path).await?;
        steps.add(1);
    }
    Ok(())
}
