//! All methods of volume backup behind the one port of the engine.

use std::sync::Arc;

use futures::future::BoxFuture;
use plimsoll_engine::Error;
use plimsoll_engine::ports::{VolumeBackupResults, VolumeBackupper};
use plimsoll_progress::Task;
use serde_json::Value;

use super::SnapshotBackup;
use crate::csi::CsiBackup;
use crate::fs_backup::FsBackup;

/// Files of pods' volumes, and snapshots of the others.
pub struct CombinedVolumeBackup {
    /// Files of pods' volumes.
    pub pods: FsBackup,
    /// The snapshots of the backup.
    pub snapshots: Arc<SnapshotBackup>,
    /// Snapshots of CSI drivers.
    pub csi: Option<Arc<CsiBackup>>,
}

impl CombinedVolumeBackup {
    /// Whether the data of a claim is backed up by another method.
    fn is_backed_up(&self, claim: &str) -> bool {
        self.pods.includes_claim(claim) || self.csi.as_ref().is_some_and(|csi| csi.has(claim))
    }
}

impl VolumeBackupper for CombinedVolumeBackup {
    fn has_volumes(&self, pod: &Value) -> bool {
        self.pods.has_volumes(pod)
    }

    fn back_up<'a>(&'a self, pod: &'a Value, frozen: bool, task: &'a Task) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.pods.back_up(pod, frozen, task).await?;
            if frozen {
                // Before the post-hooks run.
                if let Some(csi) = &self.csi {
                    csi.back_up_pod(pod, |claim| self.pods.includes_claim(claim)).await?;
                }
                self.snapshots.back_up_pod(pod, |claim| self.is_backed_up(claim)).await?;
            }
            Ok(())
        })
    }

    fn all_pods_read(&self) {
        if let Some(csi) = &self.csi {
            csi.all_pods_read();
        }
    }

    fn add_persistent_volume(&self, volume: &Value) {
        self.snapshots.state().volumes.push(volume.clone());
    }

    fn finish(&self) -> BoxFuture<'_, Result<VolumeBackupResults, Error>> {
        Box::pin(async {
            self.snapshots.back_up_remaining(|claim| self.is_backed_up(claim)).await?;
            let mut results = self.pods.finish().await?;
            results.infos.extend(self.csi.as_ref().map(|csi| csi.results()).unwrap_or_default());
            self.snapshots.results(&mut results).await?;
            Ok(results)
        })
    }

    fn final_results<'a>(
        &'a self,
        results: &'a VolumeBackupResults,
    ) -> BoxFuture<'a, Result<Option<VolumeBackupResults>, Error>> {
        Box::pin(async move {
            let csi = match &self.csi {
                Some(csi) => csi.final_results().await?,
                None => Vec::new(),
            };
            if results.snapshots.is_empty() && csi.is_empty() {
                return Ok(None);
            }
            let mut changed = self.snapshots.final_results(results).await?;
            for info in csi {
                if let Some(existing) =
                    changed.infos.iter_mut().find(|existing| existing.volume.pv_name == info.volume.pv_name)
                {
                    *existing = info;
                }
            }
            Ok(Some(changed))
        })
    }
}
