//! The metadata that a new file has by default, which need not be set.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError};

use rustix::fs::{Mode, OFlags};

use super::attributes::has_default_acl;
use super::plan::PlannedFile;
use super::run::Run;
use super::target_entry::{TargetDirectories, TargetEntry};

/// The default owner of new files, the umask, and whether they inherit an access control list.
pub(super) struct NewFileDefaults {
    umask: u32,
    /// Read from the first file; `None` if the group may depend on the directory.
    owner: OnceLock<Option<(u32, u32)>>,
    inherits_acl: AtomicBool,
}

impl NewFileDefaults {
    /// The defaults of files below `target`. If it is empty, all its directories are created by this restore.
    pub(super) fn new(target: &TargetEntry<'_>, is_empty: bool) -> Self {
        let inherits_group = target.stat().map_or(true, |stat| stat.st_mode & 0o2000 != 0);
        let owner = OnceLock::new();
        if inherits_group || !is_empty {
            let _ = owner.set(None);
        }
        let inherits_acl = AtomicBool::new(has_default_acl(target));
        Self { umask: umask().unwrap_or(0o777), owner, inherits_acl }
    }

    /// Checks an existing directory for a default access control list. Directories of this restore get theirs after their content.
    pub(super) fn check_existing(&self, directory: &TargetEntry<'_>) {
        if !self.may_inherit() && has_default_acl(directory) {
            self.inherits_acl.store(true, Ordering::Release);
        }
    }

    /// Whether new entries may inherit attributes, so that these must be checked.
    pub(super) fn may_inherit(&self) -> bool {
        self.inherits_acl.load(Ordering::Acquire)
    }

    /// Whether a new file has this owner already.
    pub(super) fn belongs_to(&self, file: &File, uid: u32, gid: u32) -> bool {
        let read_owner = || file.metadata().ok().map(|metadata| (metadata.uid(), metadata.gid()));
        *self.owner.get_or_init(read_owner) == Some((uid, gid))
    }

    /// Whether a file can safely be created with this mode.
    fn allows_mode(&self, mode: u32) -> bool {
        // An inherited list replaces the umask.
        mode & !0o777 == 0 && mode & self.umask == 0 && !self.may_inherit()
    }
}

impl PlannedFile {
    /// Opens the file for writing. The first call creates it and removes an existing entry only then, so that the entry stays if there
    /// is nothing to restore.
    pub(super) fn open(&self, run: &Run<'_>) -> std::io::Result<File> {
        let mut is_created = self.is_created.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_created {
            drop(is_created);
            return run.target.file(&self.path, OFlags::WRONLY, Mode::empty());
        }
        let mode = if self.is_created_with_mode(&run.new_file_defaults) { self.metadata.mode() } else { 0o600 };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let create = || run.target.file(&self.path, flags, Mode::from_raw_mode(mode));
        let created = match create() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                run.remove_conflict(&TargetDirectories::new(&run.target).at(&self.path)?)?;
                create()
            }
            created => created,
        };
        *is_created = created.is_ok();
        created
    }

    /// Sets the metadata that the file does not have by default.
    pub(super) fn complete(&self, file: &File, new_file_defaults: &NewFileDefaults) -> std::io::Result<()> {
        self.metadata.apply_to_file(file, new_file_defaults, self.is_created_with_mode(new_file_defaults))
    }

    fn is_created_with_mode(&self, new_file_defaults: &NewFileDefaults) -> bool {
        self.is_single_blob && new_file_defaults.allows_mode(self.metadata.mode())
    }
}

/// Reads the umask from `/proc`: the system call would change it for all threads.
fn umask() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}
