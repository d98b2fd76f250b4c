//! `velero.io`: the kinds of Velero 1.18.3, and the two volume-plugin kinds of its progress proposal.

mod transfer;
pub mod v1;
pub mod v2alpha1;

pub use transfer::{DataMovement, VolumeTransfer};
