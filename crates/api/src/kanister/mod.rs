//! `cr.kanister.io`: ActionSets, Blueprints and Profiles of Kanister.

pub mod v1alpha1;
