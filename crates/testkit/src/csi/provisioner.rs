//! Makes volumes for claims of the driver's classes, from snapshots where they ask for it, and removes those that are released.

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

/// How often claims and volumes are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Set by Kubernetes once it is time to make a volume.
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// Set by the scheduler for a class that waits for the first pod.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Looks after claims and volumes.
pub struct Provisioner {
    client: Client,
    driver: Arc<Driver>,
    /// What was said last about a claim: once is enough.
    said: Mutex<HashMap<String, String>>,
}

impl Provisioner {
    pub fn new(client: Client, driver: Arc<Driver>) -> Self {
        Self { client, driver, said: Mutex::default() }
    }

    /// Works until it is dropped. An API server that does not answer is asked again.
    pub async fn run(self) {
        loop {
            let _ = self.provision_all().await;
            let _ = self.remove_released().await;
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn provision_all(&self) -> Result<()> {
        let claims: Api<PersistentVolumeClaim> = Api::all(self.client.clone());
        for claim in claims.list(&ListParams::default()).await?.iter().filter(|claim| is_wanted(claim)) {
            if let Err(error) = self.provision(claim).await {
                self.complain(claim, &format!("{error:#}")).await;
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
        // As other provisioners: a claim with a selector waits for a volume that somebody else makes.
        if spec.selector.is_some() {
            bail!("claims with a selector get no volume made for them");
        }
        if spec.volume_mode.as_deref() == Some("Block") {
            bail!("this driver has no block volumes");
        }
        let asked = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage"));
        let asked = &asked.context("it asks for no size")?.0;
        let name = format!("pvc-{}", claim.uid().context("it has no uid")?);
        let request = CreateVolumeRequest {
            name: name.clone(),
            capacity_range: Some(CapacityRange { required_bytes: bytes(asked)? }),
            parameters: class.parameters.clone().unwrap_or_default().into_iter().collect(),
            content_source: self.source(claim).await?,
        };
        let driver = Arc::clone(&self.driver);
        let made = tokio::task::spawn_blocking(move || driver.create_volume(request)).await?;
        if let Err(status) = made {
            bail!("rpc error: code = {:?} desc = {}", status.code(), status.message());
        }
        let volume = serde_json::from_value(volume_of(claim, &class, &name, asked))?;
        match Api::<PersistentVolume>::all(self.client.clone()).create(&PostParams::default(), &volume).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => Ok(other.map(|_| ())?),
        }
    }

    /// The snapshot that a claim asks for, by the driver's own name.
    async fn source(&self, claim: &PersistentVolumeClaim) -> Result<Option<ContentSource>> {
        let spec = serde_json::to_value(&claim.spec)?;
        let asked = [&spec["dataSource"], &spec["dataSourceRef"]].into_iter().find(|source| source.is_object());
        let Some(asked) = asked else { return Ok(None) };
        let (kind, name) = (asked["kind"].as_str().unwrap_or_default(), asked["name"].as_str().unwrap_or_default());
        if kind != "VolumeSnapshot" {
            bail!("volumes are made from a VolumeSnapshot, not from a {kind}");
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

    async fn complain(&self, claim: &PersistentVolumeClaim, text: &str) {
        let (Some(uid), Some(namespace)) = (claim.uid(), claim.namespace()) else { return };
        let before = self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.clone(), text.to_owned());
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
            let Some(handle) = released(&volume).map(str::to_owned) else { continue };
            let driver = Arc::clone(&self.driver);
            let gone = tokio::task::spawn_blocking(move || driver.delete_volume(&handle)).await?;
            if gone.is_ok() {
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

fn is_wanted(claim: &PersistentVolumeClaim) -> bool {
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

/// The driver's name of a volume that nobody has any more and that is to be removed.
fn released(volume: &PersistentVolume) -> Option<&str> {
    let spec = volume.spec.as_ref()?;
    let csi = spec.csi.as_ref().filter(|csi| csi.driver == DRIVER)?;
    let is_released = volume.status.as_ref()?.phase.as_deref() == Some("Released");
    let goes = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
    (is_released && goes && volume.metadata.deletion_timestamp.is_none()).then_some(csi.volume_handle.as_str())
}

/// The bytes that a quantity such as `1Gi` means.
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
        other => bail!("sizes in {other:?} are not known here"),
    };
    let number: i64 = number.parse().with_context(|| format!("{quantity:?} is no size"))?;
    number.checked_mul(unit).with_context(|| format!("{quantity:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_kubernetes_writes_them() {
        for (text, expected) in [("10", 10), ("3k", 3_000), ("2Mi", 2 << 20), ("1Gi", 1 << 30)] {
            assert_eq!(bytes(text).unwrap(), expected);
        }
        assert!(bytes("1.5Gi").is_err() && bytes("Gi").is_err());
    }
}
