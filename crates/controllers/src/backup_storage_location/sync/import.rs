//! Creates the Backup of a backup in a location, and the records that belong to it.

use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use plimsoll_api::velero::v1::{Backup, Schedule};
use plimsoll_archive::synced_backup::{self, BackupMetadata, ForeignRecord, SYNCING};
use plimsoll_archive::{codec, layout};
use plimsoll_engine::{Error, ValidBackupList, kill};
use plimsoll_store::Store;
use serde_json::{Value, json};
use tracing::{debug, info};

use crate::backup_storage_location::StorageLocationContext;

/// Creates the Backup of a backup in the location. Returns why it cannot: then it stays out of the cluster, and the others do not
/// wait for it.
pub(super) async fn import_backup(
    name: &str,
    store: &Store,
    location: &str,
    context: &StorageLocationContext,
) -> Result<Option<String>, Error> {
    let import = async {
        match read_backup(name, store, location).await? {
            FoundBackup::Importable(object, records) => create_backup(name, *object, records, context).await,
            FoundBackup::Skipped => Ok(None),
            FoundBackup::Malformed(why) => Ok(Some(why)),
        }
    };
    import.await.or_else(|error| quarantine_reason(name, error).map(Some))
}

/// Creates what belongs to an imported backup, and then ends its sync. Returns why it cannot.
pub(super) async fn finish_import(
    name: &str,
    uid: &str,
    store: &Store,
    location: &str,
    context: &StorageLocationContext,
) -> Result<Option<String>, Error> {
    let finish = async { Records::read(name, store, location).await?.create(name, uid, context).await };
    finish.await.map(|()| None).or_else(|error| quarantine_reason(name, error).map(Some))
}

/// The reason to leave a backup out, or the error that ends the sync: a store or an API server that does not answer says nothing about a
/// backup. What the API server answers may be the fault of this backup, whatever its code: an object that is too large for etcd is an
/// internal error.
fn quarantine_reason(name: &str, error: Error) -> Result<String, Error> {
    match error {
        Error::Store(_) | Error::Archive { .. } if !error.is_retryable() => Ok(error.to_string()),
        Error::Api { .. } if error.code().is_some() => Ok(format!("backup {name}: {error}")),
        error => Err(error),
    }
}

/// A backup in the location, read to its end before anything is created.
enum FoundBackup {
    Importable(Box<Value>, Records),
    /// It is being written or deleted, or has not ended.
    Skipped,
    Malformed(String),
}

async fn read_backup(name: &str, store: &Store, location: &str) -> Result<FoundBackup, Error> {
    let key = layout::backup_metadata(name);
    let content = match store.get_at_most(&key, codec::MAX_BACKUP_OBJECT_BYTES).await {
        Err(error) if error.is_not_found() => return Ok(FoundBackup::Skipped),
        answer => answer?,
    };
    Ok(match synced_backup::backup(name, &content, location, Timestamp::now()) {
        BackupMetadata::Backup(object) => FoundBackup::Importable(object, Records::read(name, store, location).await?),
        BackupMetadata::Skip(why) => {
            debug!("backup {name} in location {location} is not synced: {why}");
            FoundBackup::Skipped
        }
        BackupMetadata::Malformed(why) => FoundBackup::Malformed(format!("{key}: {why}")),
    })
}

/// Creates the Backup and what belongs to it. Returns why the API server rejects it.
async fn create_backup(
    name: &str,
    mut backup: Value,
    records: Records,
    context: &StorageLocationContext,
) -> Result<Option<String>, Error> {
    backup["metadata"]["ownerReferences"] = owners(&backup, context).await?;
    match create("Backup", &backup, context).await? {
        CreateResult::Created(uid) => records.create(name, &uid, context).await.map(|()| None),
        CreateResult::AlreadyExists => Ok(None),
        CreateResult::Rejected(why) => Ok(Some(format!("{}: {why}", layout::backup_metadata(name)))),
    }
}

/// The owner references of a backup to schedules that exist in this cluster with the same uid.
async fn owners(backup: &Value, context: &StorageLocationContext) -> Result<Value, Error> {
    let mut kept = Vec::new();
    for (name, uid, reference) in synced_backup::owners(backup) {
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
        Err(kube::Error::Api(status)) if [400, 413, 422].contains(&status.code) => {
            Ok(CreateResult::Rejected(status.message))
        }
        Err(error) => Err(Error::api(format!("create {kind} {name}"), error)),
    }
}

/// The records of volumes that belong to a backup.
struct Records {
    location: String,
    pod_volume_backups: ValidBackupList<ForeignRecord>,
    volume_plugin_backups: ValidBackupList<ForeignRecord>,
}

impl Records {
    async fn read(name: &str, store: &Store, location: &str) -> Result<Self, Error> {
        Ok(Self {
            location: location.to_owned(),
            pod_volume_backups: ValidBackupList::read(store, &layout::backup_pod_volume_backups(name)).await?,
            volume_plugin_backups: ValidBackupList::read(store, &layout::backup_volume_plugin_backups(name)).await?,
        })
    }

    /// Creates them, and then ends the sync of the backup.
    async fn create(self, name: &str, uid: &str, context: &StorageLocationContext) -> Result<(), Error> {
        let mut transfers = self.pod_volume_backups.items();
        while let Some(Ok(transfer)) = transfers.recv().await {
            if let Some(object) = synced_backup::pod_volume_backup(&transfer.into(), (name, uid), &self.location) {
                create("PodVolumeBackup", &object, context).await?;
            }
        }
        let mut plugin_backups = self.volume_plugin_backups.items();
        while let Some(Ok(record)) = plugin_backups.recv().await {
            if let Some(object) = synced_backup::volume_plugin_backup(&record.into(), (name, uid)) {
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
}
