//! Volume policies.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use crate::Error;
use crate::quantity::Quantity;

/// Type of the action for a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeActionType {
    /// Do not back up the volume.
    Skip,
    /// File-system backup.
    FsBackup,
    /// Volume snapshot.
    Snapshot,
    /// Handled by a plugin.
    Custom,
}

/// The action for a volume and its parameters.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeAction {
    /// The type.
    #[serde(rename = "type")]
    pub kind: VolumeActionType,
    /// The parameters.
    #[serde(default)]
    pub parameters: Option<BTreeMap<String, Value>>,
}

/// The parameter of `snapshot` that names a VolumeSnapshotClass.
const SNAPSHOT_CLASS: &str = "snapshotClass";
/// The parameter of `snapshot` that names a data mover.
const DATA_MOVER: &str = "dataMover";

impl VolumeAction {
    /// The VolumeSnapshotClass of the snapshot, if the policy names one.
    pub fn snapshot_class(&self) -> Option<&str> {
        self.parameter(SNAPSHOT_CLASS)?.as_str()
    }

    fn parameter(&self, name: &str) -> Option<&Value> {
        self.parameters.as_ref()?.get(name)
    }

    /// Rejects parameters that would have no effect. Those of `custom` are for a plugin.
    fn validate(&self) -> Result<(), Error> {
        let invalid = |problem: String| Err(Error::ResourcePolicies(problem));
        if self.kind == VolumeActionType::Custom {
            return Ok(());
        }
        for name in [SNAPSHOT_CLASS, DATA_MOVER] {
            let Some(value) = self.parameter(name) else { continue };
            if self.kind != VolumeActionType::Snapshot {
                return invalid(format!("{name} is a parameter of the action snapshot only"));
            }
            match value.as_str() {
                None | Some("") => return invalid(format!("{name} must be a string that is not empty")),
                Some(mover) if name == DATA_MOVER && mover != "velero" => {
                    return invalid(format!("dataMover {mover} is not supported"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawVolumePolicy {
    #[serde(default)]
    conditions: Option<Conditions>,
    action: VolumeAction,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Conditions {
    capacity: Option<String>,
    storage_class: Vec<String>,
    nfs: Option<Nfs>,
    csi: Option<Csi>,
    volume_types: Vec<String>,
    pvc_labels: BTreeMap<String, String>,
    pvc_phase: Vec<String>,
    pvc_volume_mode: Option<String>,
    pvc_access_modes: Vec<String>,
}

/// An NFS export; an empty field matches any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Nfs {
    server: String,
    path: String,
}

/// A CSI volume; an empty driver matches any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Csi {
    driver: String,
    volume_attributes: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone)]
pub(super) struct VolumePolicy {
    conditions: Conditions,
    capacity: (Quantity, Quantity),
    pub(super) action: VolumeAction,
}

/// The properties of a volume that conditions refer to.
#[derive(Debug, Clone, Default)]
pub struct VolumeProperties {
    capacity: Quantity,
    storage_class: String,
    nfs: Option<Nfs>,
    csi: Option<Csi>,
    source: &'static str,
    claim: Option<Claim>,
}

#[derive(Debug, Clone, Default)]
struct Claim {
    labels: BTreeMap<String, String>,
    phase: String,
    volume_mode: String,
    access_modes: Vec<String>,
}

/// Volume source fields in order of precedence, and the `volumeTypes` that policies use for them.
const VOLUME_TYPES: &[(&str, &str)] = &[
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("azureDisk", "azureDisk"),
    ("azureFile", "azureFile"),
    ("cephfs", "cephfs"),
    ("cinder", "cinder"),
    ("csi", "csi"),
    ("fc", "fc"),
    ("flocker", "flocker"),
    ("flexVolume", "flexVolume"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("gitRepo", "gitRepo"),
    ("glusterfs", "glusterfs"),
    ("hostPath", "hostPath"),
    ("iscsi", "iscsi"),
    ("local", "local"),
    ("nfs", "nfs"),
    ("secret", "secret"),
    ("rbd", "rbd"),
    ("downwardAPI", "downwardAPI"),
    ("configMap", "configMap"),
    ("emptyDir", "emptyDir"),
    ("ephemeral", "ephemeral"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("projected", "projected"),
    ("quobyte", "quobyte"),
    ("scaleIO", "scaleIO"),
    ("storageos", "storageOS"),
    ("vsphereVolume", "vsphereVolume"),
];

impl VolumeProperties {
    /// Of a PersistentVolume and the claim bound to it.
    pub fn of_persistent_volume(volume: &Value, claim: Option<&Value>) -> Self {
        let spec = &volume["spec"];
        Self {
            capacity: spec["capacity"]["storage"].as_str().and_then(Quantity::parse).unwrap_or_default(),
            storage_class: string(&spec["storageClassName"]),
            ..Self::from_source(spec, claim)
        }
    }

    /// Of an entry of a pod's `spec.volumes` and the claim it refers to.
    pub fn of_pod_volume(volume: &Value, claim: Option<&Value>) -> Self {
        Self::from_source(volume, claim)
    }

    /// Of a claim without a volume.
    pub fn of_unbound_claim(claim: &Value) -> Self {
        Self { claim: Some(Claim::from_object(claim)), ..Self::default() }
    }

    fn from_source(fields: &Value, claim: Option<&Value>) -> Self {
        let nfs = fields.get("nfs").map(|nfs| Nfs { server: string(&nfs["server"]), path: string(&nfs["path"]) });
        let csi = fields.get("csi").map(|csi| Csi {
            driver: string(&csi["driver"]),
            volume_attributes: Some(string_map(&csi["volumeAttributes"])),
        });
        let source_type =
            VOLUME_TYPES.iter().find(|(field, _)| fields.get(field).is_some_and(|value| !value.is_null()));
        let source = source_type.map_or("", |(_, name)| name);
        Self { nfs, csi, source, claim: claim.map(Claim::from_object), ..Self::default() }
    }
}

impl Claim {
    fn from_object(claim: &Value) -> Self {
        let modes = claim["spec"]["accessModes"].as_array();
        Self {
            labels: string_map(&claim["metadata"]["labels"]),
            phase: string(&claim["status"]["phase"]),
            volume_mode: string(&claim["spec"]["volumeMode"]),
            access_modes: modes.into_iter().flatten().map(string).collect(),
        }
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn string_map(value: &Value) -> BTreeMap<String, String> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), string(value))).collect()
}

impl VolumePolicy {
    pub(super) fn compile(raw: RawVolumePolicy) -> Result<Self, Error> {
        raw.action.validate()?;
        let conditions = raw.conditions.unwrap_or_default();
        let capacity = parse_capacity(conditions.capacity.as_deref().unwrap_or_default())?;
        if conditions.csi.as_ref().is_some_and(|csi| csi.driver.is_empty() && csi.volume_attributes.is_some()) {
            return Err(Error::ResourcePolicies("csi volumeAttributes require a driver".to_owned()));
        }
        Ok(Self { conditions, capacity, action: raw.action })
    }

    pub(super) fn matches(&self, volume: &VolumeProperties) -> bool {
        let Conditions { storage_class, nfs, csi, volume_types, .. } = &self.conditions;
        in_range(self.capacity, volume.capacity)
            && (storage_class.is_empty() || storage_class.contains(&volume.storage_class))
            && nfs.as_ref().is_none_or(|condition| volume.nfs.as_ref().is_some_and(|own| condition.matches(own)))
            && csi.as_ref().is_none_or(|condition| volume.csi.as_ref().is_some_and(|own| condition.matches(own)))
            && (volume_types.is_empty() || volume_types.iter().any(|volume_type| volume_type == volume.source))
            && self.claim_matches(volume.claim.as_ref())
    }

    fn claim_matches(&self, claim: Option<&Claim>) -> bool {
        let Conditions { pvc_labels, pvc_phase, pvc_volume_mode, pvc_access_modes, .. } = &self.conditions;
        let default = Claim::default();
        let claim = claim.unwrap_or(&default);
        let as_set = |modes: &[String]| modes.iter().cloned().collect::<BTreeSet<_>>();
        pvc_labels.iter().all(|(key, value)| claim.labels.get(key) == Some(value))
            && (pvc_phase.is_empty() || pvc_phase.contains(&claim.phase))
            && pvc_volume_mode.as_ref().is_none_or(|mode| mode.is_empty() || *mode == claim.volume_mode)
            && (pvc_access_modes.is_empty()
                || (pvc_access_modes.len() == claim.access_modes.len()
                    && as_set(pvc_access_modes) == as_set(&claim.access_modes)))
    }
}

impl Nfs {
    fn matches(&self, own: &Self) -> bool {
        (self.server.is_empty() || self.server == own.server) && (self.path.is_empty() || self.path == own.path)
    }
}

impl Csi {
    fn matches(&self, own: &Self) -> bool {
        let attribute = |key: &String| own.volume_attributes.as_ref().and_then(|attributes| attributes.get(key));
        let attributes = || self.volume_attributes.iter().flatten().all(|(key, value)| attribute(key) == Some(value));
        self.driver.is_empty() || (self.driver == own.driver && attributes())
    }
}

/// Parses `10Gi,100Gi`; either bound may be empty.
fn parse_capacity(capacity: &str) -> Result<(Quantity, Quantity), Error> {
    if capacity.is_empty() {
        return Ok(Default::default());
    }
    let invalid = |problem: &str| Error::ResourcePolicies(format!("invalid capacity {capacity:?}: {problem}"));
    let bound = |text: &str| match text.trim() {
        "" => Ok(Quantity::default()),
        text => Quantity::parse(text).ok_or_else(|| invalid("not a quantity")),
    };
    let (lower, upper) = capacity.split_once(',').ok_or_else(|| invalid("expected lower,upper"))?;
    if upper.contains(',') {
        return Err(invalid("expected lower,upper"));
    }
    let (lower, upper) = (bound(lower)?, bound(upper)?);
    if upper < lower && !upper.is_zero() {
        return Err(invalid("lower bound exceeds upper bound"));
    }
    Ok((lower, upper))
}

/// Whether a size is in the range; an upper bound of zero means unlimited.
fn in_range((lower, upper): (Quantity, Quantity), size: Quantity) -> bool {
    lower <= size && (upper.is_zero() || size <= upper)
}
