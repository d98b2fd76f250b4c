//! The data of volumes: on its way now, and lately.

use plimsoll_observe::{Carried, Overview, World};
use plimsoll_progress::view::size_text;
use plimsoll_progress::{Percent, Snapshot, Unit};
use serde::Serialize;

use crate::model::seconds;

/// So many volumes are listed: those on their way, and the latest of the others.
const MOST: usize = 500;

/// One volume. Moments, not ages: it changes only when something happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// `podvolumebackup/velero/nightly-x1`.
    pub key: String,
    /// Its kind, as we call it.
    pub kind: &'static str,
    /// What to call it.
    pub name: String,
    /// The key of the operation it belongs to.
    pub parent: Option<String>,
    /// Where it is moved.
    pub node: Option<String>,
    /// Its own phase.
    pub phase: String,
    /// It will not change any more.
    pub is_ended: bool,
    /// It should advance, and does not.
    pub is_stuck: bool,
    /// `43.33 %`.
    pub percent: String,
    /// How full the bar is.
    pub bar: Option<f64>,
    /// `1.2 GiB of 4.5 GiB`.
    pub bytes: String,
    /// `35.1 MiB/s`.
    pub rate: String,
    /// `2m to 4m`.
    pub left: String,
    /// When it was asked for, in milliseconds since 1970.
    pub created: Option<i64>,
    /// When it ended.
    pub ended: Option<i64>,
    /// What it says about itself.
    pub message: String,
}

/// All volumes that are shown, as they are now.
pub fn volumes(overview: &mut Overview, world: &World) -> Vec<Volume> {
    overview.volumes(world, MOST).iter().map(volume).collect()
}

fn volume(carried: &Carried<'_>) -> Volume {
    let (transfer, object) = (carried.transfer, carried.transfer.object);
    let live = carried.live.as_ref();
    let percent = live.and_then(Snapshot::percent).or_else(|| transfer.percent());
    let stalled = live.is_some_and(|tree| tree.stall.is_some()) || object.at("/status/plimsoll/stalled").is_some();
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
        bytes: bytes(carried),
        rate: carried.speed.map(|speed| speed.rate_text()).unwrap_or_default(),
        left: carried.speed.map(|speed| speed.left_text()).unwrap_or_default(),
        created: object.created().map(seconds),
        ended: object.time("/status/completionTimestamp").map(seconds),
        message: object.text("/status/message").to_owned(),
    }
}

/// Bytes done and how many there are. What was written once does not go back when somebody begins anew.
fn bytes(carried: &Carried<'_>) -> String {
    let (written, mut total) = carried.transfer.bytes();
    let mut done = written;
    if let Some(counts) = carried.live.as_ref().and_then(|tree| tree.sum(Unit::Bytes)) {
        done = counts.settled().max(written);
        total = if counts.total.value().is_some() { counts.total } else { total };
    }
    match total.value() {
        Some(known) if total.is_final() => format!("{} of {}", size_text(done), size_text(known)),
        Some(known) => format!("{} of ~{}", size_text(done), size_text(known.max(done))),
        None if done == 0 => String::new(),
        None => size_text(done),
    }
}
