//! Snapshots that plugins take of volumes, and volumes that they make from them.
//!
//! ```text
//!  PersistentVolume ── places: whose plugin knows it? ──▶ CreateSnapshot ──▶ volumesnapshots, volumeinfo
//!                                                              │
//!      VolumePluginBackup, the plugin's own or ours ◀── live ──┘── still moving? ──▶ WaitingForPluginOperations
//! ```
//!
//! A snapshot cannot be taken back and is not taken twice: it is in the journal before it is asked for. One that a server
//! asked for and died is looked for among the plugin's records, and named as a possible orphan if it is not there.

mod backup;
mod delete;
mod earlier;
mod live;
mod moving;
mod places;
mod records;
mod restore;
mod zone;

pub(crate) use backup::{AllVolumes, Snapshots, Taking};
pub(crate) use delete::{delete_snapshots, discard};
pub(crate) use places::{Chosen, choose};
pub(crate) use restore::{FromSnapshots, Making};
