//! Checks whether the owners of files in a volume can be set. kopia silently ignores permission errors; with the option to report
//! them it would fail the whole restore for one file.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Gid, Uid};

/// Warns about a volume where owners cannot be set. Without root that is expected.
pub(super) fn warning(directory: &Path) -> Option<String> {
    rustix::process::geteuid().is_root().then(|| warning_if(directory, change_owner))?
}

fn warning_if(directory: &Path, change_owner: impl Fn(&Path) -> io::Result<()>) -> Option<String> {
    let is_denied = change_owner(directory).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    is_denied.then(|| {
        format!(
            "volume {} does not allow a change of owners (as an NFS export with root_squash): owners are not restored, and \
             modes possibly not",
            directory.display()
        )
    })
}

/// Changes the owner of a temporary file.
fn change_owner(directory: &Path) -> io::Result<()> {
    let file = tempfile::tempfile_in(directory)?;
    let other = other_owner(&file)?;
    Ok(rustix::fs::fchown(&file, Some(Uid::from_raw(other)), Some(Gid::from_raw(other)))?)
}

/// A UID that is not the owner's: a squashed root may set the current owner.
fn other_owner(file: &File) -> io::Result<u32> {
    let owner = file.metadata()?.uid();
    Ok(if owner == 1 { 2 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_denies_a_change_of_owners_is_a_warning() {
        let warning_for = |number: i32| warning_if(Path::new("/volume"), |_| Err(io::Error::from_raw_os_error(number)));
        let [not_permitted, full] = [1, 28].map(warning_for);
        let warning = not_permitted.expect("a warning");
        assert!(warning.contains("/volume") && warning.contains("owners are not restored"), "{warning}");
        assert_eq!(full, None, "a full volume is reported by the restore");
        assert_eq!(warning_if(Path::new("/volume"), |_| Ok(())), None);
    }

    #[test]
    fn the_check_leaves_no_files() {
        let folder = tempfile::tempdir().expect("a directory");
        assert_eq!(warning(folder.path()), None, "the owner can be changed, or it is not root");
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
    }
}
