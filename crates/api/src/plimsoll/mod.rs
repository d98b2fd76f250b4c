//! `plimsoll.dev`: the kinds that Plimsoll adds.

pub mod v1alpha1;
