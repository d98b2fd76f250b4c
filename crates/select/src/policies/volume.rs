//! Policies for volumes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use crate::Error;
use crate::quantity::Quantity;

/// What to do with a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionKind {
    /// Nothing.
    Skip,
    /// Copy its files.
    FsBackup,
    /// Take a snapshot.
    Snapshot,
    /// A plugin knows.
    Custom,
}

/// What to do with a volume, and how.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// What to do.
    #[serde(rename = "type")]
    pub kind: ActionKind,
    /// How.
    #[serde(default)]
    pub parameters: Option<BTreeMap<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawVolumePolicy {
    #[serde(default)]
    conditions: Option<Conditions>,
    action: Action,
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
    pub(super) action: Action,
}

/// What the conditions look at.
#[derive(Debug, Clone, Default)]
pub struct Volume {
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

/// Fields of a volume that say what it is, in the order they are looked for; and the names policies have for them.
const TYPES: &[(&str, &str)] = &[
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

impl Volume {
    /// A PersistentVolume and the claim that is bound to it.
    pub fn persistent(volume: &Value, claim: Option<&Value>) -> Self {
        let spec = &volume["spec"];
        Self {
            capacity: spec["capacity"]["storage"].as_str().and_then(Quantity::parse).unwrap_or_default(),
            storage_class: text(&spec["storageClassName"]),
            ..Self::from_source(spec, claim)
        }
    }

    /// An entry of a pod's `spec.volumes`, and the claim it names.
    pub fn of_pod(volume: &Value, claim: Option<&Value>) -> Self {
        Self::from_source(volume, claim)
    }

    /// A claim that has no volume yet.
    pub fn claimed(claim: &Value) -> Self {
        Self { claim: Some(Claim::read(claim)), ..Self::default() }
    }

    fn from_source(fields: &Value, claim: Option<&Value>) -> Self {
        let nfs = fields.get("nfs").map(|nfs| Nfs { server: text(&nfs["server"]), path: text(&nfs["path"]) });
        let csi = fields
            .get("csi")
            .map(|csi| Csi { driver: text(&csi["driver"]), volume_attributes: Some(texts(&csi["volumeAttributes"])) });
        let known = TYPES.iter().find(|(field, _)| fields.get(field).is_some_and(|value| !value.is_null()));
        let source = known.map_or("", |(_, name)| name);
        Self { nfs, csi, source, claim: claim.map(Claim::read), ..Self::default() }
    }
}

impl Claim {
    fn read(claim: &Value) -> Self {
        let modes = claim["spec"]["accessModes"].as_array();
        Self {
            labels: texts(&claim["metadata"]["labels"]),
            phase: text(&claim["status"]["phase"]),
            volume_mode: text(&claim["spec"]["volumeMode"]),
            access_modes: modes.into_iter().flatten().map(text).collect(),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

impl VolumePolicy {
    pub(super) fn compile(raw: RawVolumePolicy) -> Result<Self, Error> {
        let conditions = raw.conditions.unwrap_or_default();
        let capacity = parse_capacity(conditions.capacity.as_deref().unwrap_or_default())?;
        if conditions.csi.as_ref().is_some_and(|csi| csi.driver.is_empty() && csi.volume_attributes.is_some()) {
            return Err(Error::Policies("csi volumeAttributes need a driver".to_owned()));
        }
        Ok(Self { conditions, capacity, action: raw.action })
    }

    pub(super) fn matches(&self, volume: &Volume) -> bool {
        let Conditions { storage_class, nfs, csi, volume_types, .. } = &self.conditions;
        in_range(self.capacity, volume.capacity)
            && (storage_class.is_empty() || storage_class.contains(&volume.storage_class))
            && nfs.as_ref().is_none_or(|wanted| volume.nfs.as_ref().is_some_and(|own| wanted.matches(own)))
            && csi.as_ref().is_none_or(|wanted| volume.csi.as_ref().is_some_and(|own| wanted.matches(own)))
            && (volume_types.is_empty() || volume_types.iter().any(|wanted| wanted == volume.source))
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

/// `10Gi,100Gi`; either side may be missing.
fn parse_capacity(capacity: &str) -> Result<(Quantity, Quantity), Error> {
    if capacity.is_empty() {
        return Ok(Default::default());
    }
    let bad = |problem: &str| Error::Policies(format!("capacity {capacity:?} {problem}"));
    let bound = |text: &str| match text.trim() {
        "" => Ok(Quantity::default()),
        text => Quantity::parse(text).ok_or_else(|| bad("is not a range of quantities")),
    };
    let (lower, upper) = capacity.split_once(',').ok_or_else(|| bad("is not of the form lower,upper"))?;
    if upper.contains(',') {
        return Err(bad("is not of the form lower,upper"));
    }
    let (lower, upper) = (bound(lower)?, bound(upper)?);
    if upper < lower && !upper.is_zero() {
        return Err(bad("has its lower bound above its upper one"));
    }
    Ok((lower, upper))
}

/// An upper bound of zero is none.
fn in_range((lower, upper): (Quantity, Quantity), size: Quantity) -> bool {
    lower <= size && (upper.is_zero() || size <= upper)
}
