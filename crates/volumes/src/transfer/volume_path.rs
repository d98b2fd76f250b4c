//! The part of a volume that a transfer is about.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// The part of a volume that a transfer is about: all of it, or one path in it.
#[derive(Debug)]
pub struct VolumePath {
    /// A directory.
    pub path: PathBuf,
    /// The only entry of it that is meant, if not all of them are.
    pub only: Option<PathBuf>,
    /// Keeps the directory open, where `path` is valid only as long as it is.
    pub directory: Option<OwnedFd>,
}
