//! Maps error texts of kopia to errors: it has one exit code for all of them.

use std::path::Path;

use crate::MoverError;
use crate::error_patterns::{
    ACCESS_DENIED, DISK_ERROR, ErrorRow, ErrorText, NO_SPACE, UNREACHABLE, credentials_rejected, no_space,
    repository_not_found, unreachable, wrong_password,
};
use crate::program::truncate;

/// kopia's errors.
const ERRORS: &[ErrorRow] = &[
    (&[&["invalid repository password"]], wrong_password),
    (&[NO_SPACE, &["XMinioStorageFull"]], no_space),
    (&[&["repository not initialized in the provided storage", "cannot access storage path"]], repository_not_found),
    (&[ACCESS_DENIED, &["access denied"]], credentials_rejected),
    (&[UNREACHABLE], unreachable),
];

/// The error of a text, if it is a known one. `volume` is the target directory of a restore.
pub(super) fn classify(text: &str, name: &str, volume: Option<&Path>) -> Option<MoverError> {
    if let Some(error) = volume.and_then(|volume| volume_error(text, volume)) {
        return Some(error);
    }
    let last_line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    ErrorText { text, cause: truncate(last_line), repository: name, volume }.classify(ERRORS)
}

/// The error of the volume's disk. A repository in a directory has the same error text with another path.
fn volume_error(text: &str, volume: &Path) -> Option<MoverError> {
    let path = volume.display().to_string();
    let is_in_volume = |call: &str| call.contains(&format!("{path}/")) || call.ends_with(&path);
    let line = text.lines().find(|line| failed_call(line).is_some_and(is_in_volume))?;
    Some(MoverError::Volume { path, cause: truncate(line) })
}

/// The failed call before the error, as `write /volume/file`. The text before it may contain other paths.
fn failed_call(line: &str) -> Option<&str> {
    line.split_once(DISK_ERROR)?.0.trim_end_matches(": ").rsplit(": ").next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_error_texts_have_reasons() {
        let reason = |text: &str, volume| classify(text, "/r", volume).map_or("none", |error| error.reason());
        let wrong =
            "open repository: unable to open repository: unable to create format manager: invalid repository password";
        assert_eq!(reason(wrong, None), "WrongRepositoryPassword");
        assert_eq!(
            reason("cannot open storage: cannot access storage path: stat /r: no such file", None),
            "RepositoryNotFound"
        );
        assert_eq!(reason("write: no space left on device", None), "RepositoryFull");
        assert_eq!(reason("write: no space left on device", Some(Path::new("/v"))), "VolumeFull");
        assert_eq!(reason("dial tcp 127.0.0.1:1: connect: connection refused", None), "RepositoryUnreachable");
        assert_eq!(reason("something else", None), "none");
    }

    #[test]
    fn the_path_of_a_disk_error_decides_between_volume_and_repository() {
        let volume = Some(Path::new("/pods/1/data"));
        let reason = |text: &str, volume| classify(text, "/r", volume).map_or("none", |error| error.reason());
        let write = "error restoring: restore error: error copying: error creating file: write /pods/1/data/a/b: input/output error";
        assert_eq!(reason(write, volume), "VolumeUnusable");
        let flush = "error restoring: sync /pods/1/data: input/output error\nunable to close repository";
        assert_eq!(reason(flush, volume), "VolumeUnusable");
        let read = "error restoring: error copying to /pods/1/data/a/b: read /r/p/abc/def.f: input/output error";
        assert_eq!(reason(read, volume), "RepositoryUnreachable");
        let other = "error restoring: read /pods/1/data-of-another/def.f: input/output error";
        assert_eq!(reason(other, volume), "RepositoryUnreachable");
        assert_eq!(reason("write /pods/1/data/f: input/output error", None), "RepositoryUnreachable");
    }
}
