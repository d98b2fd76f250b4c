//! What a new file is born with: what it has already need not be given to it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

use super::plan::PlannedFile;

/// The owner of new files, and the bits of a mode that they do not get.
pub(super) struct Newborn {
    umask: u32,
    /// Seen at the first file; nothing where the group may differ from directory to directory.
    owner: OnceLock<Option<(u32, u32)>>,
}

impl Newborn {
    /// For files below `target`, whose directories are all made by this restore if `fresh`.
    pub(super) fn new(target: &Path, fresh: bool) -> Self {
        let inherits = target.metadata().map_or(true, |metadata| metadata.mode() & 0o2000 != 0);
        let owner = OnceLock::new();
        if inherits || !fresh {
            let _ = owner.set(None);
        }
        Self { umask: umask().unwrap_or(0o777), owner }
    }

    /// Whether a file that was just made belongs to these already.
    pub(super) fn belongs_to(&self, file: &File, uid: u32, gid: u32) -> bool {
        let look = || file.metadata().ok().map(|metadata| (metadata.uid(), metadata.gid()));
        *self.owner.get_or_init(look) == Some((uid, gid))
    }

    /// Whether a file made with this mode has it, and nobody gains by it meanwhile.
    fn gives(&self, mode: u32) -> bool {
        mode & !0o777 == 0 && mode & self.umask == 0
    }
}

impl PlannedFile {
    /// Opens the file to write to. What was in its way has been removed while planning.
    pub(super) fn create(&self, newborn: &Newborn) -> std::io::Result<File> {
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let mode = if self.born_with_mode(newborn) { self.metadata.mode() } else { 0o600 };
        OpenOptions::new().write(true).create(true).truncate(false).mode(mode).custom_flags(flags).open(&self.path)
    }

    /// Gives it what it was not born with.
    pub(super) fn complete(&self, file: &File, newborn: &Newborn) -> std::io::Result<()> {
        self.metadata.apply_to_file(file, newborn, self.born_with_mode(newborn))
    }

    fn born_with_mode(&self, newborn: &Newborn) -> bool {
        self.is_whole && newborn.gives(self.metadata.mode())
    }
}

/// Asked of the system without changing it, which would change it for all threads.
fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}
