//! A volume from a snapshot: the snapshot moves into the server's namespace, and a claim begins as it.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::velero::v2alpha1::DataUpload;
use plimsoll_engine::{Error, kill};
use serde_json::{Value, json};

use super::driver_objects::{self, NotCopied};
use super::holder_pod::{HeldVolume, claim, create, metadata, pod, remove};
use super::{ExposeStep, ExposedTransfer, Exposer};
use crate::csi::{GROUP, VERSION, contents, permanent_error, secret_annotations, snapshots};
use crate::node_agent_config::BackupPvc;

fn text<'a>(value: &'a Value, place: &str) -> &'a str {
    value.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

impl ExposedTransfer for DataUpload {
    async fn expose(&self, exposer: &Exposer) -> Result<ExposeStep, Error> {
        let source = Source::read(exposer, self).await?;
        let own = read(&contents(&exposer.leader.client), &self.name_any()).await?;
        let content = match (own, &source) {
            (Some(own), _) => own,
            (None, Some(source)) => match source.take_over(exposer, self).await? {
                Ok(content) => content,
                Err(step) => return Ok(step),
            },
            (None, None) => return Ok(ExposeStep::Refused("its VolumeSnapshot is gone".into())),
        };
        let snapshot = json!({ "apiVersion": VERSION, "kind": "VolumeSnapshot", "metadata": metadata(self),
            "spec": { "source": { "volumeSnapshotContentName": self.name_any() },
                "volumeSnapshotClassName": content.pointer("/spec/volumeSnapshotClassName") } });
        create(&snapshots(&exposer.leader.client, &exposer.leader.namespace), snapshot).await?;
        kill::point("exposing.source.before");
        if let Some(source) = &source {
            source.release(exposer).await?;
        }
        let storage_class = storage_class(self);
        let settings = exposer.config.backup_pvc(&storage_class);
        let namespace = self.spec.source_namespace.as_deref().unwrap_or_default();
        match driver_objects::copy_all(&exposer.leader, self, namespace, &settings.driver_objects()).await? {
            Ok(()) => {}
            Err(NotCopied::Waiting(why)) => return Ok(ExposeStep::Waiting(why)),
            Err(NotCopied::Missing(what)) => {
                let why = format!(
                    "{what} does not exist, but the ConfigMap of the node agents says that its driver needs it"
                );
                return Ok(ExposeStep::Refused(why));
            }
        }
        match claim_spec(self, exposer, &content, &settings).await? {
            Ok(spec) => claim(exposer, self, spec, &settings.annotations).await?,
            Err(why) => return Ok(ExposeStep::Refused(why)),
        }
        let keeps_labels = settings.read_only && settings.spc_no_relabeling;
        pod(exposer, self, &HeldVolume { storage_class, read_only: settings.read_only, keeps_labels }).await
    }

    /// Deletes the snapshot too, also in the storage: its data is in the repository, or the transfer has failed.
    async fn clean_up(&self, exposer: &Exposer) -> Result<bool, Error> {
        let (name, uid) = (self.name_any(), self.uid().unwrap_or_default());
        if let Some(source) = Source::read(exposer, self).await? {
            source.discard(exposer).await?;
        }
        let pod_gone = remove(&exposer.leader.api::<Pod>(), &name, &uid).await?;
        let claim_gone = remove(&exposer.leader.api::<PersistentVolumeClaim>(), &name, &uid).await?;
        // The volume may still need the snapshot that it began as.
        let snapshots = snapshots(&exposer.leader.client, &exposer.leader.namespace);
        let gone = pod_gone && claim_gone && remove(&snapshots, &name, &uid).await?;
        if gone {
            driver_objects::release_all(&exposer.leader, self).await?;
        }
        Ok(gone)
    }
}

/// The StorageClass of the volume that the snapshot is of.
fn storage_class(upload: &DataUpload) -> String {
    let snapshot = upload.spec.csi_snapshot.as_ref();
    snapshot.and_then(|snapshot| snapshot.storage_class.clone()).unwrap_or_default()
}

/// A claim as large as the one that the snapshot is of; the inner error says why there is none.
async fn claim_spec(
    upload: &DataUpload,
    exposer: &Exposer,
    content: &Value,
    settings: &BackupPvc,
) -> Result<Result<Value, String>, Error> {
    let namespace = upload.spec.source_namespace.clone().unwrap_or_default();
    let name = upload.spec.source_pvc.clone().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(exposer.leader.client.clone(), &namespace);
    let found = claims.get_opt(&name).await.map_err(|e| Error::api(format!("read claim {namespace}/{name}"), e))?;
    let found = found.map(|claim| json!(claim)).unwrap_or_default();
    if text(&found, "/spec/volumeMode") == "Block" {
        return Ok(Err(format!("claim {namespace}/{name} is a block device, which has no files to move")));
    }
    let sizes = ["/status/capacity/storage", "/spec/resources/requests/storage"];
    let size = sizes.into_iter().map(|place| text(&found, place)).find(|size| !size.is_empty()).map(str::to_owned);
    let restore_size = content.pointer("/status/restoreSize").and_then(Value::as_i64).unwrap_or(1);
    let size = size.unwrap_or_else(|| restore_size.max(1).to_string());
    let source = json!({ "apiGroup": GROUP, "kind": "VolumeSnapshot", "name": upload.name_any() });
    let own = upload.spec.csi_snapshot.as_ref().and_then(|snapshot| snapshot.storage_class.clone());
    let class = Some(settings.storage_class.clone()).filter(|class| !class.is_empty()).or(own);
    let mode = if settings.read_only { "ReadOnlyMany" } else { "ReadWriteOnce" };
    Ok(Ok(json!({ "accessModes": [mode], "storageClassName": class, "volumeMode": "Filesystem",
        "resources": { "requests": { "storage": size } }, "dataSource": source })))
}

/// The snapshot as the backup has made it, beside its claim.
struct Source {
    snapshot: Value,
    content: Option<Value>,
}

async fn read(api: &Api<kube::api::DynamicObject>, name: &str) -> Result<Option<Value>, Error> {
    match api.get_opt(name).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        found => Ok(found.map_err(|e| Error::api(format!("read {name}"), e))?.map(|found| json!(found))),
    }
}

impl Source {
    async fn read(exposer: &Exposer, upload: &DataUpload) -> Result<Option<Self>, Error> {
        let named = upload.spec.csi_snapshot.as_ref().and_then(|snapshot| snapshot.volume_snapshot.clone());
        let namespace = upload.spec.source_namespace.clone().unwrap_or_default();
        let api = snapshots(&exposer.leader.client, &namespace);
        let Some(snapshot) = read(&api, &named.unwrap_or_default()).await? else { return Ok(None) };
        // Only objects of the same backup.
        if snapshot.pointer("/metadata/labels").and_then(|all| all.get(labels::BACKUP_UID)).is_none() {
            return Ok(None);
        }
        let content = match text(&snapshot, "/status/boundVolumeSnapshotContentName") {
            "" => None,
            bound => read(&contents(&exposer.leader.client), bound).await?,
        };
        Ok(Some(Self { snapshot, content }))
    }

    /// Creates a content of our own for the snapshot of the driver, and uses it from then on.
    async fn take_over(&self, exposer: &Exposer, upload: &DataUpload) -> Result<Result<Value, ExposeStep>, Error> {
        let name = text(&self.snapshot, "/metadata/name");
        if let Some(why) = permanent_error(&self.snapshot, self.content.as_ref()) {
            return Ok(Err(ExposeStep::Refused(format!("snapshot {name}: {why}"))));
        }
        let Some(content) = &self.content else {
            return Ok(Err(ExposeStep::Waiting(format!("for the driver to take snapshot {name}"))));
        };
        let handle = text(content, "/status/snapshotHandle");
        if handle.is_empty() || self.snapshot.pointer("/status/readyToUse") != Some(&json!(true)) {
            return Ok(Err(ExposeStep::Waiting(format!("for snapshot {name} to be ready"))));
        }
        self.set_deletion_policy(exposer, "Retain").await?;
        let own = json!({ "apiVersion": VERSION, "kind": "VolumeSnapshotContent",
            "metadata": { "name": upload.name_any(), "annotations": secret_annotations(content),
                "labels": { labels::TRANSFER_UID: upload.uid() } },
            "spec": { "deletionPolicy": "Delete", "driver": content["spec"]["driver"], "source": { "snapshotHandle": handle },
                "volumeSnapshotClassName": content.pointer("/spec/volumeSnapshotClassName"),
                "volumeSnapshotRef": { "apiVersion": VERSION, "kind": "VolumeSnapshot", "name": upload.name_any(),
                    "namespace": exposer.leader.namespace } } });
        kill::point("exposing.content.before");
        create(&contents(&exposer.leader.client), own.clone()).await?;
        kill::point("exposing.content.after");
        Ok(Ok(own))
    }

    async fn set_deletion_policy(&self, exposer: &Exposer, policy: &str) -> Result<(), Error> {
        let Some(content) = &self.content else { return Ok(()) };
        let name = text(content, "/metadata/name");
        let patch = Patch::Merge(json!({ "spec": { "deletionPolicy": policy } }));
        let written = contents(&exposer.leader.client).patch(name, &PatchParams::default(), &patch).await;
        ignore_not_found(written, &format!("write VolumeSnapshotContent {name}"))
    }

    /// The driver keeps it, and the objects go.
    async fn release(&self, exposer: &Exposer) -> Result<(), Error> {
        self.set_deletion_policy(exposer, "Retain").await?;
        if let Some(content) = &self.content {
            let name = text(content, "/metadata/name");
            let gone = contents(&exposer.leader.client).delete(name, &DeleteParams::default()).await;
            ignore_not_found(gone, &format!("delete VolumeSnapshotContent {name}"))?;
        }
        self.delete(exposer).await
    }

    /// It goes, with what the driver has.
    async fn discard(&self, exposer: &Exposer) -> Result<(), Error> {
        self.set_deletion_policy(exposer, "Delete").await?;
        self.delete(exposer).await
    }

    async fn delete(&self, exposer: &Exposer) -> Result<(), Error> {
        let (namespace, name) = (text(&self.snapshot, "/metadata/namespace"), text(&self.snapshot, "/metadata/name"));
        let gone = snapshots(&exposer.leader.client, namespace).delete(name, &DeleteParams::default()).await;
        ignore_not_found(gone, &format!("delete VolumeSnapshot {namespace}/{name}"))
    }
}

fn ignore_not_found<R>(answer: kube::Result<R>, what: &str) -> Result<(), Error> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop).map_err(|error| Error::api(what.to_owned(), error)),
    }
}
