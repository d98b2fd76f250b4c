//! Post-operation items: read again after an item operation has ended, and replaced in the archive.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use bytes::Bytes;
use plimsoll_archive::layout;
use plimsoll_archive::proof::FileDigest;
use plimsoll_archive::tarball::{Reader, Writer};
use plimsoll_progress::{Task, Unit};
use plimsoll_store::Store;

use super::actions::ItemId;
use crate::cluster::{Cluster, Resource, add_type_meta};
use crate::operation_files::{OperationFiles, download, file_digest};
use crate::ports::LeadershipGuard;
use crate::{Error, RetryPolicy};

type ItemContents = BTreeMap<ItemId, (String, Bytes)>;

/// The archive of a backup in its location.
pub(super) struct Archive<'a> {
    pub store: &'a Store,
    /// The backup.
    pub name: &'a str,
    /// The digest of what was written there; unknown if another program wrote it.
    pub contents: Option<&'a mut FileDigest>,
}

/// Reads items again and replaces them in the archive of a backup, or adds them. Returns an error message for each item that
/// could not be read.
pub(super) async fn update_post_operation_items(
    cluster: &Cluster,
    archive: Archive<'_>,
    items: Vec<ItemId>,
    scratch: &Path,
    task: &Task,
    guard: &dyn LeadershipGuard,
) -> Result<Vec<String>, Error> {
    let discovered = RetryPolicy::default().run(task, || cluster.discover()).await?;
    let (fresh, missing) = read(cluster, &discovered.resources, items, task).await?;
    if fresh.is_empty() {
        return Ok(missing);
    }
    let (before, after) = (scratch.join("before.tar.gz"), scratch.join("after.tar.gz"));
    let key = layout::backup_contents(archive.name);
    task.say(&key);
    // The proof of the backup will cover what is written here: what another program wrote meanwhile is not taken over.
    let found = RetryPolicy::default().run(task, || download(archive.store, &key, &before)).await?;
    if archive.contents.as_ref().is_some_and(|contents| found != **contents) {
        let detail = "the location has other content than this backup wrote".to_owned();
        return Err(Error::InvalidResponse { what: format!("read back {key}"), detail });
    }
    let rewriting = tokio::task::spawn_blocking({
        let (before, after) = (before.clone(), after.clone());
        move || rewrite(&before, &after, fresh)
    });
    let rewritten =
        rewriting.await.unwrap_or_else(|_| Err(std::io::Error::other("rewriting the archive panicked").into()));
    rewritten.map_err(|source| Error::Archive { name: key.clone(), source })?;
    let written = file_digest(&after).await?;
    OperationFiles::default().spooled(key, &after).write(archive.store, task, guard).await?;
    if let Some(contents) = archive.contents {
        *contents = written;
    }
    Ok(missing)
}

async fn read(
    cluster: &Cluster,
    served: &[Resource],
    items: Vec<ItemId>,
    task: &Task,
) -> Result<(ItemContents, Vec<String>), Error> {
    let (mut fresh, mut missing) = (ItemContents::new(), Vec::new());
    let steps = task.meter(Unit::Steps);
    for item in items {
        task.say(item.to_string());
        let Some(resource) = served.iter().find(|served| served.group_resource() == item.group_resource) else {
            missing.push(format!("post-operation item {item}: the cluster does not serve this resource"));
            continue;
        };
        let path = format!("{}/{}", resource.path(item.namespace.as_deref()), item.name);
        match RetryPolicy::default().run(task, || cluster.get(&path)).await? {
            Some(object) => {
                fresh.insert(item, (resource.version.clone(), add_type_meta(&object, resource)));
            }
            None => missing.push(format!("post-operation item {item} not found")),
        }
        steps.add(1);
    }
    Ok((fresh, missing))
}

fn rewrite(before: &Path, after: &Path, mut fresh: ItemContents) -> Result<(), plimsoll_archive::Error> {
    let mut archive = Reader::new(File::open(before)?);
    let mut out = Writer::new(std::io::BufWriter::new(File::create(after)?))?;
    while let Some(item) = archive.next_item()? {
        let id = ItemId::new(&item.group_resource, item.namespace.as_deref(), &item.name);
        let version = item.header.api_version.rsplit('/').next().unwrap_or_default().to_owned();
        let (version, json) = fresh.remove(&id).unwrap_or_else(|| (version, item.json.into()));
        out.append_object(&item.group_resource, &version, item.namespace.as_deref(), &item.name, &json)?;
    }
    for (id, (version, json)) in fresh {
        out.append_object(&id.group_resource, &version, id.namespace.as_deref(), &id.name, &json)?;
    }
    out.finish()?.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn existing_items_are_replaced_and_new_items_are_added() {
        let scratch = tempfile::tempdir().unwrap();
        let (before, after) = (scratch.path().join("a"), scratch.path().join("b"));
        let object = |name: &str, state: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}, "data": {"state": state}});
        let mut writer = Writer::new(File::create(&before).unwrap()).unwrap();
        for name in ["one", "two"] {
            let json = object(name, "old").to_string();
            writer.append_object("configmaps", "v1", Some("n"), name, json.as_bytes()).unwrap();
        }
        writer.finish().unwrap();
        let fresh = |name: &str| {
            let id = ItemId::new("configmaps", Some("n"), name);
            (id, ("v1".to_owned(), Bytes::from(object(name, "new").to_string())))
        };
        rewrite(&before, &after, [fresh("two"), fresh("three")].into()).unwrap();
        let mut archive = Reader::new(File::open(&after).unwrap());
        let mut found = Vec::new();
        while let Some(item) = archive.next_item().unwrap() {
            let json: Value = serde_json::from_slice(&item.json).unwrap();
            found.push(format!("{} {}", item.name, json["data"]["state"].as_str().unwrap()));
        }
        assert_eq!(found, ["one old", "two new", "three new"]);
    }
}
