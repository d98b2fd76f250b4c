//! Volume transfers: running ones and recent ones.

use plimsoll_observe::{ClusterState, Overview, VolumeProgress};
use plimsoll_progress::{Percent, Token, Unit, view};
use serde::Serialize;

use crate::rows::seconds;

/// Volumes in the list: running ones, then the latest of the others.
const MAX_VOLUMES: usize = 500;

/// One volume. It has times, not ages, so that it changes only when something happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// `podvolumebackup/velero/nightly-x1`.
    pub key: String,
    /// `podvolumebackup`, `dataupload`, …
    pub kind: &'static str,
    /// The pod and volume, or the claim.
    pub name: String,
    /// The key of the operation it belongs to.
    pub parent: Option<String>,
    /// The node that moves it.
    pub node: Option<String>,
    /// The object's phase.
    pub phase: String,
    /// Whether it has ended.
    pub is_ended: bool,
    /// Whether it is stalled.
    pub is_stuck: bool,
    /// `43.33 %`.
    pub percent: String,
    /// The fraction of the bar.
    pub bar: Option<f64>,
    /// `1.2 GiB of 4.5 GiB`.
    pub bytes: String,
    /// `35.1 MiB/s`.
    pub rate: String,
    /// `2m to 4m`.
    pub left: String,
    /// When it was created, in milliseconds since 1970.
    pub created: Option<i64>,
    /// When it ended.
    pub ended: Option<i64>,
    /// The object's message.
    pub message: String,
    /// Which numbers these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
}

/// The volumes in the list.
pub fn volumes(overview: &mut Overview, cluster: &ClusterState) -> Vec<Volume> {
    overview.volumes(cluster, MAX_VOLUMES).iter().map(volume).collect()
}

fn volume(progress: &VolumeProgress<'_>) -> Volume {
    let (transfer, object) = (progress.transfer, progress.transfer.object);
    let tree = &progress.tree;
    let percent = tree.percent();
    let stalled = tree.stall.is_some() || object.at("/status/plimsoll/stalled").is_some();
    Volume {
        key: format!("{}/{}/{}", object.kind().word(), object.namespace(), object.name()),
        kind: object.kind().word(),
        name: transfer.label(),
        parent: transfer.parent().map(|(kind, name)| format!("{}/{}/{name}", kind.word(), object.namespace())),
        node: transfer.node().map(str::to_owned),
        phase: object.phase().to_owned(),
        is_ended: transfer.is_ended(),
        is_stuck: stalled && !transfer.is_ended(),
        percent: percent.map(|percent| format!("{percent} %")).unwrap_or_default(),
        bar: percent.map(Percent::fraction),
        bytes: tree.sum(Unit::Bytes).map(|bytes| view::bytes_text(&bytes)).unwrap_or_default(),
        rate: progress.speed.map(|speed| speed.rate_text()).unwrap_or_default(),
        left: progress.speed.map(|speed| speed.left_text()).unwrap_or_default(),
        created: object.created().map(seconds),
        ended: object.time("/status/completionTimestamp").map(seconds),
        message: object.text("/status/message").to_owned(),
        token: tree.token,
    }
}
