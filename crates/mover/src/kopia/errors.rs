//! From kopia's words to reasons: it has one exit code for everything.

use std::path::Path;

use crate::MoverError;
use crate::tool::cut;

/// The reason, if there is one with a name. `volume` is the directory that is being restored into.
pub(super) fn classify(words: &str, name: &str, volume: Option<&Path>) -> Option<MoverError> {
    let has = |needles: &[&str]| needles.iter().any(|needle| words.contains(needle));
    let repository = name.to_owned();
    let cause = || cut(words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default());
    if let Some(error) = volume.and_then(|volume| of_disk(words, volume)) {
        return Some(error);
    }
    Some(match () {
        () if has(&["invalid repository password"]) => MoverError::WrongPassword { repository },
        () if has(&["no space left on device", "disk quota exceeded", "XMinioStorageFull"]) => match volume {
            Some(volume) => MoverError::VolumeFull { path: volume.display().to_string() },
            None => MoverError::RepositoryFull { repository },
        },
        () if has(&["repository not initialized in the provided storage", "cannot access storage path"]) => {
            MoverError::NoRepository { repository }
        }
        () if has(&[
            "AccessDenied",
            "Access Denied",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "access denied",
        ]) =>
        {
            MoverError::Refused { repository, cause: cause() }
        }
        () if has(UNREACHABLE) => MoverError::Unreachable { repository, cause: cause() },
        () => return None,
    })
}

/// Whether the disk under the volume failed. The one under a repository in a directory says the same, of another path.
fn of_disk(words: &str, volume: &Path) -> Option<MoverError> {
    let path = volume.display().to_string();
    let is_in_volume = |failed: &str| failed.contains(&format!("{path}/")) || failed.ends_with(&path);
    let said = words.lines().find(|line| failed_call(line).is_some_and(is_in_volume))?;
    Some(MoverError::Volume { path, cause: cut(said) })
}

/// `write /volume/file`, of a line that ends with why: what comes before may name other paths.
fn failed_call(line: &str) -> Option<&str> {
    line.split_once(DISK_FAILED)?.0.trim_end_matches(": ").rsplit(": ").next()
}

const DISK_FAILED: &str = "input/output error";

const UNREACHABLE: &[&str] = &[
    "connection refused",
    "no such host",
    "i/o timeout",
    "connection reset",
    "no route to host",
    "network is unreachable",
    "TLS handshake timeout",
    "context deadline exceeded",
    DISK_FAILED,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kopias_words_have_reasons() {
        let reason = |words: &str, volume| classify(words, "/r", volume).map_or("none", |error| error.reason());
        let wrong =
            "open repository: unable to open repository: unable to create format manager: invalid repository password";
        assert_eq!(reason(wrong, None), "WrongRepositoryPassword");
        assert_eq!(
            reason("cannot open storage: cannot access storage path: stat /r: no such file", None),
            "NotARepository"
        );
        assert_eq!(reason("write: no space left on device", None), "RepositoryFull");
        assert_eq!(reason("write: no space left on device", Some(Path::new("/v"))), "VolumeFull");
        assert_eq!(reason("dial tcp 127.0.0.1:1: connect: connection refused", None), "RepositoryUnreachable");
        assert_eq!(reason("something else", None), "none");
    }

    #[test]
    fn the_path_in_an_io_error_tells_a_failing_volume_from_a_failing_repository() {
        let volume = Some(Path::new("/pods/1/data"));
        let reason = |words: &str, volume| classify(words, "/r", volume).map_or("none", |error| error.reason());
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
