//! Selects the volumes of a pod that are backed up file by file.

use plimsoll_api::labels;
use plimsoll_engine::Error;
use serde_json::Value;
use tracing::debug;

use super::{FsBackup, path, text};
use crate::fs_backup::policy::{Choice, VolumeBinding, listed, volumes};
use crate::fs_backup::volume_info::{self, ClaimInfo};

/// A volume that is backed up.
pub(super) struct SelectedVolume {
    pub volume: String,
    pub claim: Option<Value>,
    pub claim_info: ClaimInfo,
    /// `namespace/name` of its claim.
    key: Option<String>,
}

/// A pod whose volumes are not backed up, because it does not run or does not mount them, and their claims.
pub(super) struct IdlePod {
    namespace: String,
    claims: Vec<Option<String>>,
    line: String,
}

/// Why a volume that a pod only declares is not backed up.
pub(crate) const UNMOUNTED: &str = "no container of its pod mounts it, so that it has no directory";

/// Why volumes of a pod on such a node are not backed up.
pub(crate) fn windows_refused(node: &str) -> String {
    format!("node {node} runs Windows, which is not supported")
}

impl FsBackup {
    /// The volumes of a pod that are backed up. Reports those that should be and cannot.
    pub(super) async fn choose(&self, pod: &Value) -> Result<Vec<SelectedVolume>, Error> {
        let mut chosen = Vec::new();
        for name in listed(pod, labels::BACKUP_VOLUMES) {
            if !volumes(pod).any(|volume| volume["name"] == name) {
                self.warn(pod, format!("pod {} has no volume {name}, which its annotation names", path(pod)));
            }
        }
        for volume in volumes(pod) {
            if let Some(one) = self.choose_one(pod, volume).await? {
                chosen.push(one);
            }
        }
        // Several pods may share a claim. Its files are backed up through one pod that can.
        chosen.retain(|one| one.key.as_ref().is_none_or(|key| !self.includes_claim(key)));
        if chosen.is_empty() {
            return Ok(chosen);
        }
        let (phase, node) = (text(pod, "/status/phase"), text(pod, "/spec/nodeName"));
        if phase != "Running" {
            let line = format!("pod {} is {phase}, not Running: its volumes are not backed up", path(pod));
            let claims = chosen.into_iter().map(|one| one.key).collect();
            self.state().idle.push(IdlePod { namespace: text(pod, "/metadata/namespace").to_owned(), claims, line });
            return Ok(Vec::new());
        }
        if self.is_windows(node).await? {
            let why = windows_refused(node);
            self.error(pod, format!("volumes of pod {} are refused: {why}", path(pod)));
            return Ok(Vec::new());
        }
        let take = |one: &SelectedVolume| one.key.clone().is_none_or(|key| self.state().claims.insert(key));
        chosen.retain(take);
        Ok(chosen)
    }

    /// The warnings about pods whose volumes are not backed up: none where all of these are backed up through other pods.
    pub(super) fn idle_pod_warnings(&self) -> Vec<(String, String)> {
        let mut state = self.state();
        let idle = std::mem::take(&mut state.idle);
        let left_out =
            |one: &IdlePod| one.claims.iter().any(|key| key.as_ref().is_none_or(|key| !state.claims.contains(key)));
        idle.into_iter().filter(left_out).map(|one| (one.namespace, one.line)).collect()
    }

    async fn choose_one(&self, pod: &Value, volume: &Value) -> Result<Option<SelectedVolume>, Error> {
        let namespace = text(pod, "/metadata/namespace");
        let (claim, persistent) = self.reading().binding(pod, volume).await?;
        let claim_info = claim.as_ref().map(|claim| ClaimInfo::of(claim, persistent.as_ref())).unwrap_or_default();
        let name = text(volume, "/name").to_owned();
        let key = (!claim_info.claim.is_empty()).then(|| format!("{namespace}/{}", claim_info.claim));
        let binding = VolumeBinding { claim: claim.as_ref(), volume: persistent.as_ref() };
        match self.parameters.policy.choose(pod, volume, binding) {
            Choice::Leave => Ok(None),
            Choice::Exclude(why) => {
                debug!("volume {}/{name} is not backed up: {why}", path(pod));
                Ok(None)
            }
            Choice::Skip(why) => {
                if !claim_info.volume.is_empty() {
                    self.state().results.infos.push(volume_info::skipped(&claim_info, &why));
                }
                Ok(None)
            }
            Choice::Unmounted => {
                let line = format!("the files of volume {}/{name} are not backed up: {UNMOUNTED}", path(pod));
                let claims = vec![key];
                self.state().idle.push(IdlePod { namespace: namespace.to_owned(), claims, line });
                Ok(None)
            }
            Choice::Refuse { why, named } => {
                let line = format!("volume {}/{name} is not backed up: {why}", path(pod));
                if named {
                    self.error(pod, line);
                } else {
                    self.warn(pod, line);
                }
                Ok(None)
            }
            Choice::BackUp => Ok(Some(SelectedVolume { volume: name, claim, claim_info, key })),
        }
    }

    async fn is_windows(&self, node: &str) -> Result<bool, Error> {
        if let Some(known) = self.state().windows.get(node) {
            return Ok(*known);
        }
        let windows = self.reading().runs_windows(node).await?;
        self.state().windows.insert(node.to_owned(), windows);
        Ok(windows)
    }
}
