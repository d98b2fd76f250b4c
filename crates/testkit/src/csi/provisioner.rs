//! Provisions volumes for claims of the driver's classes, also from snapshots, and deletes released volumes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::DRIVER;
use super::driver::{Driver, from_snapshot};
use super::wire::{CapacityRange, ContentSource, CreateVolumeRequest};

/// Interval at which claims and volumes are listed.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Set by Kubernetes when a volume is to be provisioned.
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// Set by the scheduler for a class that waits for the first pod.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Provisions and deletes volumes.
pub struct Provisioner {
    client: Client,
    driver: Arc<Driver>,
    /// The last event of each claim, so that it is recorded once.
    last_events: Mutex<HashMap<String, String>>,
}

impl Provisioner {
    pub fn new(client: Client, driver: Arc<Driver>) -> Self {
        Self { client, driver, last_events: Mutex::default() }
    }

    /// Runs until it is dropped. Errors are retried.
    pub async fn run(self) {
        loop {
            let _ = self.provision_all().await;
            let _ = self.remove_released().await;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn provision_all(&self) -> Result<()> {
        let claims: Api<PersistentVolumeClaim> = Api::all(self.client.clone());
        for claim in claims.list(&ListParams::default()).await?.iter().filter(|claim| is_pending(claim)) {
            if let Err(error) = self.provision(claim).await {
                self.record_event(claim, &format!("{error:#}")).await;
            }
        }
        Ok(())
    }

    async fn provision(&self, claim: &PersistentVolumeClaim) -> Result<()> {
        let spec = claim.spec.as_ref().context("it has no spec")?;
        let class = spec.storage_class_name.as_deref().context("it has no class")?;
        let class = Api::<StorageClass>::all(self.client.clone()).get(class).await?;
        if is_waiting(&class) && !claim.annotations().contains_key(SELECTED_NODE) {
            return Ok(());
        }
        // As with other provisioners, a claim with a selector waits for a matching volume.
        if spec.selector.is_some() {
            bail!("claims with a selector are not provisioned");
        }
        if spec.volume_mode.as_deref() == Some("Block") {
            bail!("this driver does not support block volumes");
        }
        let requested = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage"));
        let requested = &requested.context("it requests no size")?.0;
        let name = format!("pvc-{}", claim.uid().context("it has no uid")?);
        let request = CreateVolumeRequest {
            name: name.clone(),
            capacity_range: Some(CapacityRange { required_bytes: bytes(requested)? }),
            parameters: class.parameters.clone().unwrap_or_default().into_iter().collect(),
            content_source: self.source(claim).await?,
        };
        let driver = Arc::clone(&self.driver);
        let created = tokio::task::spawn_blocking(move || driver.create_volume(request)).await?;
        if let Err(status) = created {
            bail!("rpc error: code = {:?} desc = {}", status.code(), status.message());
        }
        let volume = serde_json::from_value(volume_of(claim, &class, &name, requested))?;
        match Api::<PersistentVolume>::all(self.client.clone()).create(&PostParams::default(), &volume).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => Ok(other.map(|_| ())?),
        }
    }

    /// The content source that a claim requests.
    async fn source(&self, claim: &PersistentVolumeClaim) -> Result<Option<ContentSource>> {
        let spec = serde_json::to_value(&claim.spec)?;
        let requested = [&spec["dataSource"], &spec["dataSourceRef"]].into_iter().find(|source| source.is_object());
        let Some(requested) = requested else { return Ok(None) };
        let (kind, name) =
            (requested["kind"].as_str().unwrap_or_default(), requested["name"].as_str().unwrap_or_default());
        if kind != "VolumeSnapshot" {
            bail!("the data source must be a VolumeSnapshot, not a {kind}");
        }
        let namespace = claim.namespace().unwrap_or_default();
        let snapshots: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &namespace, &resource("VolumeSnapshot"));
        let snapshot = snapshots.get(name).await?;
        let status = &snapshot.data["status"];
        if status["readyToUse"] != true {
            bail!("snapshot {name} is not ready");
        }
        let content = status["boundVolumeSnapshotContentName"].as_str().context("the snapshot is not bound")?;
        let contents: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource("VolumeSnapshotContent"));
        let content = contents.get(content).await?;
        let handle = content.data["status"]["snapshotHandle"].as_str().context("the content has no handle")?;
        Ok(Some(from_snapshot(handle.to_owned())))
    }

    async fn record_event(&self, claim: &PersistentVolumeClaim, text: &str) {
        let (Some(uid), Some(namespace)) = (claim.uid(), claim.namespace()) else { return };
        let before =
            self.last_events.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.clone(), text.to_owned());
        if before.as_deref() == Some(text) {
            return;
        }
        let event = json!({
            "metadata": {"generateName": format!("{}.", claim.name_any())},
            "involvedObject": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace,
                "name": claim.name_any(), "uid": uid},
            "type": "Warning", "reason": "ProvisioningFailed", "message": text, "count": 1,
            "source": {"component": DRIVER},
        });
        let Ok(event) = serde_json::from_value(event) else { return };
        let _ = Api::<Event>::namespaced(self.client.clone(), &namespace).create(&PostParams::default(), &event).await;
    }

    async fn remove_released(&self) -> Result<()> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        for volume in volumes.list(&ListParams::default()).await? {
            let Some(handle) = released_handle(&volume).map(str::to_owned) else { continue };
            let driver = Arc::clone(&self.driver);
            let removed = tokio::task::spawn_blocking(move || driver.delete_volume(&handle)).await?;
            if removed.is_ok() {
                volumes.delete(&volume.name_any(), &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }
}

/// A kind of the snapshot API.
pub fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", kind))
}

fn is_pending(claim: &PersistentVolumeClaim) -> bool {
    let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).is_some_and(|name| !name.is_empty());
    let ours = claim.annotations().get(PROVISIONER).is_some_and(|name| name == DRIVER);
    ours && !bound && claim.metadata.deletion_timestamp.is_none()
}

fn is_waiting(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

fn volume_of(claim: &PersistentVolumeClaim, class: &StorageClass, name: &str, size: &str) -> Value {
    let spec = claim.spec.clone().unwrap_or_default();
    json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        "spec": {
            "capacity": {"storage": size}, "accessModes": spec.access_modes, "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "storageClassName": class.name_any(),
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace(),
                "name": claim.name_any(), "uid": claim.uid()},
            "csi": {"driver": DRIVER, "volumeHandle": name},
        },
    })
}

/// The `volumeHandle` of a released volume with the reclaim policy `Delete`.
fn released_handle(volume: &PersistentVolume) -> Option<&str> {
    let spec = volume.spec.as_ref()?;
    let csi = spec.csi.as_ref().filter(|csi| csi.driver == DRIVER)?;
    let is_released = volume.status.as_ref()?.phase.as_deref() == Some("Released");
    let is_delete_policy = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
    (is_released && is_delete_policy && volume.metadata.deletion_timestamp.is_none())
        .then_some(csi.volume_handle.as_str())
}

/// The bytes of a quantity such as `1Gi`.
fn bytes(quantity: &str) -> Result<i64> {
    let split = quantity.find(|c: char| !c.is_ascii_digit()).unwrap_or(quantity.len());
    let (number, unit) = quantity.split_at(split);
    let unit: i64 = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        other => bail!("unit {other:?} is not supported"),
    };
    let number: i64 = number.parse().with_context(|| format!("{quantity:?} is not a size"))?;
    number.checked_mul(unit).with_context(|| format!("{quantity:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_as_in_kubernetes() {
        for (text, expected) in [("10", 10), ("3k", 3_000), ("2Mi", 2 << 20), ("1Gi", 1 << 30)] {
            assert_eq!(bytes(text).unwrap(), expected);
        }
        assert!(bytes("1.5Gi").is_err() && bytes("Gi").is_err());
    }
}
