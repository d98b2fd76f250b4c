//! `velero.io`: the kinds of Velero 1.18.3, and the two volume-plugin kinds of its progress proposal.

pub mod v1;
pub mod v2alpha1;
