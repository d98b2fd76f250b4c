//! From kopia's words to reasons: it has one exit code for everything.

use std::path::Path;

use crate::MoverError;
use crate::tool::cut;

/// The reason, if there is one with a name. `volume` is the directory that is being restored into.
pub(super) fn classify(words: &str, name: &str, volume: Option<&Path>) -> Option<MoverError> {
    let has = |needles: &[&str]| needles.iter().any(|needle| words.contains(needle));
    let repository = name.to_owned();
    let cause = || cut(words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default());
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

const UNREACHABLE: &[&str] = &[
    "connection refused",
    "no such host",
    "i/o timeout",
    "connection reset",
    "no route to host",
    "network is unreachable",
    "TLS handshake timeout",
    "context deadline exceeded",
    "input/output error",
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
}
