//! Whether files of a volume can be given to their owners. kopia passes over what it is not permitted to set, without a
//! word; told not to, it would restore nothing at all for the sake of one file.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Gid, Uid};

/// What should be known about a volume before kopia restores into it. Whoever is not root expects nothing else.
pub(super) fn warning(directory: &Path) -> Option<String> {
    rustix::process::geteuid().is_root().then(|| warning_if(directory, give_away))?
}

fn warning_if(directory: &Path, give_away: impl Fn(&Path) -> io::Result<()>) -> Option<String> {
    let refused = give_away(directory).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    refused.then(|| {
        format!(
            "volume {} lets nobody give files away (an NFS export with root_squash does so): owners are not restored, and \
             modes perhaps not",
            directory.display()
        )
    })
}

/// Tries it on a file that is gone afterwards.
fn give_away(directory: &Path) -> io::Result<()> {
    let file = tempfile::tempfile_in(directory)?;
    let other = another(&file)?;
    Ok(rustix::fs::fchown(&file, Some(Uid::from_raw(other)), Some(Gid::from_raw(other)))?)
}

/// Somebody who is not the owner: a squashed root may well give a file to whom it belongs.
fn another(file: &File) -> io::Result<u32> {
    let owner = file.metadata()?.uid();
    Ok(if owner == 1 { 2 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_whose_files_cannot_be_given_away_is_named() {
        let told = |number: i32| warning_if(Path::new("/volume"), |_| Err(io::Error::from_raw_os_error(number)));
        let [not_permitted, full] = [1, 28].map(told);
        let words = not_permitted.expect("is told");
        assert!(words.contains("/volume") && words.contains("owners are not restored"), "{words}");
        assert_eq!(full, None, "that is told by others");
        assert_eq!(warning_if(Path::new("/volume"), |_| Ok(())), None);
    }

    #[test]
    fn a_volume_is_as_it_was_afterwards() {
        let folder = tempfile::tempdir().expect("a directory");
        assert_eq!(warning(folder.path()), None, "a file can be given away here, or it is not tried");
        assert_eq!(std::fs::read_dir(folder.path()).expect("is there").count(), 0);
    }
}
