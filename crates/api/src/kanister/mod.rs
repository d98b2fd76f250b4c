//! `cr.kanister.io`: actions on applications, and the blueprints that say how.

pub mod v1alpha1;
