//! What a new file is born with: what it has already need not be given to it.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError};

use rustix::fs::{Mode, OFlags};

use super::attributes::is_inherited_from;
use super::place::{Place, Places};
use super::plan::PlannedFile;
use super::run::Run;

/// The owner of new files, the bits of a mode that they do not get, and whether they get an access control list.
pub(super) struct Newborn {
    umask: u32,
    /// Seen at the first file; nothing where the group may differ from directory to directory.
    owner: OnceLock<Option<(u32, u32)>>,
    inherits_lists: AtomicBool,
}

impl Newborn {
    /// For files below `target`, whose directories are all made by this restore if `fresh`.
    pub(super) fn new(target: &Place<'_>, fresh: bool) -> Self {
        let inherits = target.stat().map_or(true, |stat| stat.st_mode & 0o2000 != 0);
        let owner = OnceLock::new();
        if inherits || !fresh {
            let _ = owner.set(None);
        }
        let inherits_lists = AtomicBool::new(is_inherited_from(target));
        Self { umask: umask().unwrap_or(0o777), owner, inherits_lists }
    }

    /// A directory that was there before may pass on an access control list. Those that this restore makes get theirs
    /// after everything in them, and pass on only what they inherit.
    pub(super) fn met(&self, directory: &Place<'_>) {
        if !self.may_inherit() && is_inherited_from(directory) {
            self.inherits_lists.store(true, Ordering::Release);
        }
    }

    /// Whether what is made may have attributes that nobody gave it: then, and only then, it is worth looking.
    pub(super) fn may_inherit(&self) -> bool {
        self.inherits_lists.load(Ordering::Acquire)
    }

    /// Whether a file that was just made belongs to these already.
    pub(super) fn belongs_to(&self, file: &File, uid: u32, gid: u32) -> bool {
        let look = || file.metadata().ok().map(|metadata| (metadata.uid(), metadata.gid()));
        *self.owner.get_or_init(look) == Some((uid, gid))
    }

    /// Whether a file made with this mode has it, and nobody gains by it meanwhile.
    fn gives(&self, mode: u32) -> bool {
        // A list that is inherited counts instead of the umask.
        mode & !0o777 == 0 && mode & self.umask == 0 && !self.may_inherit()
    }
}

impl PlannedFile {
    /// Opens the file to write to. Whoever comes first makes it, and only then removes what was in its place: as long as
    /// there is nothing to put there, what somebody had is worth more.
    pub(super) fn open(&self, run: &Run<'_>) -> std::io::Result<File> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if *begun {
            drop(begun);
            return run.target.file(&self.path, OFlags::WRONLY, Mode::empty());
        }
        let mode = if self.born_with_mode(&run.newborn) { self.metadata.mode() } else { 0o600 };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let make = || run.target.file(&self.path, flags, Mode::from_raw_mode(mode));
        let made = match make() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                run.clear(&Places::new(&run.target).at(&self.path)?)?;
                make()
            }
            made => made,
        };
        *begun = made.is_ok();
        made
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
