//! The kinds of subject.

pub mod backup;
pub mod deletion;
pub mod restore;
mod restore_source;
