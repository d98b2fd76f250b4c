//! Creates the Backup of a backup in a location, and the records that belong to it.

use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use plimsoll_api::velero::v1::{Backup, Schedule};
use plimsoll_archive::{codec, layout};
use plimsoll_engine::{Error, kill};
use plimsoll_store::Store;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::foreign::{self, BackupMetadata, SYNCING};
use crate::backup_storage_location::StorageLocationContext;

/// Maximum size of backup metadata.
const MAX_METADATA_BYTES: u64 = 16 << 20;

/// Creates the Backup of a backup in the location.
pub(super) async fn import_backup(
    name: &str,
    store: &Store,
    location: &str,
    context: &StorageLocationContext,
    malformed: &mut Vec<String>,
) -> Result<(), Error> {
    let content = match metadata(name, store).await? {
        Some(Ok(content)) => content,
        Some(Err(why)) => {
            malformed.push(format!("{}: {why}", layout::backup_metadata(name)));
            return Ok(());
        }
        // It is being written or deleted.
        None => return Ok(()),
    };
    let mut backup = match foreign::backup(name, &content, location, Timestamp::now()) {
        BackupMetadata::Backup(backup) => backup,
        BackupMetadata::Skip(why) => {
            debug!("backup {name} in location {location} is not synced: {why}");
            return Ok(());
        }
        BackupMetadata::Malformed(why) => {
            malformed.push(format!("{}: {why}", layout::backup_metadata(name)));
            return Ok(());
        }
    };
    backup["metadata"]["ownerReferences"] = owners(&backup, context).await?;
    match create("Backup", &backup, context).await? {
        CreateResult::Created(uid) => finish(name, &uid, store, location, context).await,
        CreateResult::AlreadyExists => Ok(()),
        CreateResult::Rejected(why) => {
            malformed.push(format!("{}: {why}", layout::backup_metadata(name)));
            Ok(())
        }
    }
}

/// Reads the metadata of a backup. The inner error says what is wrong with its content.
async fn metadata(name: &str, store: &Store) -> Result<Option<Result<Vec<u8>, String>>, Error> {
    let key = layout::backup_metadata(name);
    let read = async {
        let reader = store.reader(&key).await?;
        if reader.info().size > MAX_METADATA_BYTES {
            return Ok(Err(format!("it is larger than {MAX_METADATA_BYTES} bytes")));
        }
        drop(reader);
        store.get(&key).await.map(|content| Ok(content.to_vec()))
    };
    match read.await {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The owner references of a backup to schedules that exist in this cluster with the same uid.
async fn owners(backup: &Value, context: &StorageLocationContext) -> Result<Value, Error> {
    let mut kept = Vec::new();
    for (name, uid, reference) in foreign::owners(backup) {
        let found = context.leader.api::<Schedule>().get_opt(&name).await;
        let found = found.map_err(|e| Error::api(format!("read schedule {name}"), e))?;
        if found.and_then(|schedule| schedule.uid()).as_deref() == Some(&uid) {
            kept.push(reference);
        }
    }
    Ok(Value::Array(kept))
}

enum CreateResult {
    /// With this uid.
    Created(String),
    /// It existed already.
    AlreadyExists,
    /// The API server rejects it.
    Rejected(String),
}

async fn create(kind: &str, object: &Value, context: &StorageLocationContext) -> Result<CreateResult, Error> {
    context.leader.fence.check()?;
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let resource = kube::api::ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v1", kind));
    let all: Api<DynamicObject> =
        Api::namespaced_with(context.leader.client.clone(), &context.leader.namespace, &resource);
    let typed: DynamicObject = match serde_json::from_value(object.clone()) {
        Ok(typed) => typed,
        Err(error) => return Ok(CreateResult::Rejected(error.to_string())),
    };
    kill::point("sync.create.before");
    let answer = all.create(&PostParams::default(), &typed).await;
    kill::point("sync.create.after");
    match answer {
        Ok(created) => {
            info!("{kind} {name} is synced from its location");
            Ok(CreateResult::Created(created.uid().unwrap_or_default()))
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(CreateResult::AlreadyExists),
        Err(kube::Error::Api(status)) if [400, 422].contains(&status.code) => {
            Ok(CreateResult::Rejected(status.message))
        }
        Err(error) => Err(Error::api(format!("create {kind} {name}"), error)),
    }
}

/// Creates what belongs to an imported backup, and then ends its sync.
pub(super) async fn finish(
    name: &str,
    uid: &str,
    store: &Store,
    location: &str,
    context: &StorageLocationContext,
) -> Result<(), Error> {
    for transfer in listed(name, &layout::backup_pod_volume_backups(name), store).await? {
        if let Some(object) = foreign::pod_volume_backup(&transfer, (name, uid), location) {
            create("PodVolumeBackup", &object, context).await?;
        }
    }
    for record in listed(name, &layout::backup_volume_plugin_backups(name), store).await? {
        if let Some(object) = foreign::volume_plugin_backup(&record, (name, uid)) {
            create("VolumePluginBackup", &object, context).await?;
        }
    }
    context.leader.fence.check()?;
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { SYNCING: null } } }));
    kill::point("sync.finish.before");
    match context.leader.api::<Backup>().patch(name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Error::api(format!("end the sync of backup {name}"), error)),
    }
}

/// Reads a list file of a backup; a missing file is an empty list.
async fn listed(name: &str, key: &str, store: &Store) -> Result<Vec<Value>, Error> {
    match store.get(key).await {
        // The backup is usable without its list.
        Ok(content) => Ok(codec::read_gzip_list(content.as_ref()).unwrap_or_else(|error| {
            warn!("{key}: {error}: the volume backups of backup {name} are not synced");
            Vec::new()
        })),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}
