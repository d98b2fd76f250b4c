//! Finds the plugin that supports a volume.

use std::sync::Arc;

use plimsoll_engine::Error;
use plimsoll_plugin::VolumeSnapshotterClient;
use serde_json::Value;

use super::SnapshotBackup;
use crate::snapshotter::locations::plugin_error;

/// A volume that a plugin supports.
pub(super) struct Candidate {
    pub snapshotter: Arc<VolumeSnapshotterClient>,
    pub location: String,
    pub handle: String,
}

impl SnapshotBackup {
    /// The first location whose plugin supports the volume. `explicit` says whether snapshots were requested explicitly.
    pub(super) async fn find_plugin(&self, volume: &Value, explicit: bool) -> Result<Option<Candidate>, Error> {
        for location in &self.locations.0 {
            let name = location.metadata.name.clone().unwrap_or_default();
            let found = async {
                let snapshotter = self.context.locations.snapshotter(location).await?;
                let handle = snapshotter.volume_id(volume).await.map_err(|error| plugin_error(&error))?;
                Ok::<_, Error>((snapshotter, handle))
            };
            match found.await {
                Ok((snapshotter, Some(handle))) => return Ok(Some(Candidate { snapshotter, location: name, handle })),
                Ok((_, None)) => {}
                Err(error @ Error::Fenced(_)) => return Err(error),
                Err(error) => self.report_unusable(&name, &error, explicit),
            }
        }
        Ok(None)
    }

    /// Reports a location that cannot be used, once. A missing plugin is an error only if snapshots were requested explicitly.
    fn report_unusable(&self, location: &str, error: &Error, explicit: bool) {
        if !self.state().reported_locations.insert(location.to_owned()) {
            return;
        }
        let line = format!("VolumeSnapshotLocation {location} cannot be used: {error}");
        let absent = matches!(error, Error::Plugin { reason: "PluginNotFound", .. });
        if absent && !explicit {
            self.warn("", line);
        } else {
            self.error("", line);
        }
    }
}
