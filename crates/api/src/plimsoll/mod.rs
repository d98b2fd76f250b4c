//! `plimsoll.dev`: our own kinds.

pub mod v1alpha1;
