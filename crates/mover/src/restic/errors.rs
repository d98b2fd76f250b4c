//! From restic's exit codes and words to reasons. Codes have meant something since 0.17; before, only the words do.

use std::path::Path;

use super::messages::exit_message;
use crate::MoverError;
use crate::tool::{Exit, cut};

/// The reason, if restic's end has one with a name. `volume` is the directory that is being restored into.
pub(super) fn classify(exit: &Exit, name: &str, volume: Option<&Path>) -> Option<MoverError> {
    let words = exit_message(&exit.last_words);
    let repository = name.to_owned();
    match exit.code() {
        Some(12) => Some(MoverError::WrongPassword { repository }),
        Some(11) => Some(MoverError::Locked { repository, holder: holder(&words) }),
        Some(10) => Some(MoverError::NoRepository { repository }),
        _ => of_words(&words, name, volume),
    }
}

/// The reason that words give, if it has a name.
pub(super) fn of_words(words: &str, name: &str, volume: Option<&Path>) -> Option<MoverError> {
    let has = |needles: &[&str]| needles.iter().any(|needle| words.contains(needle));
    let repository = name.to_owned();
    // What keeps a lock file from being written is never in the volume.
    let about_lock = has(&[NO_LOCK]);
    let volume = volume.filter(|_| !about_lock);
    let error = match () {
        () if has(&["wrong password or no key found"]) => MoverError::WrongPassword { repository },
        () if has(&["already locked"]) => MoverError::Locked { repository, holder: holder(words) },
        () if has(&["no space left on device", "disk quota exceeded"]) => match volume {
            Some(volume) => MoverError::VolumeFull { path: volume.display().to_string() },
            None => MoverError::RepositoryFull { repository },
        },
        () if has(&["no matching ID", "no snapshot found"]) => {
            MoverError::NoSnapshot { snapshot: "asked for".into(), repository }
        }
        () if has(&["Is there a repository at the following location?", "repository does not exist"]) => {
            MoverError::NoRepository { repository }
        }
        () if has(UNREACHABLE) => MoverError::Unreachable { repository, cause: cut(words) },
        () if has(&["Access Denied", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"]) => {
            MoverError::Refused { repository, cause: cut(words) }
        }
        () if about_lock && has(NOT_WRITABLE) => MoverError::Refused { repository, cause: cut(words) },
        () => return None,
    };
    Some(error)
}

/// Whether restic ended because the store takes no lock file. What only reads can go on without one.
pub(super) fn refuses_lock(exit: &Exit) -> bool {
    let words = exit_message(&exit.last_words);
    let refused = |error| matches!(error, MoverError::Refused { .. } | MoverError::RepositoryFull { .. });
    !exit.status.success() && words.contains(NO_LOCK) && of_words(&words, "", None).is_some_and(refused)
}

/// What restic says if it has no lock, whoever or whatever is the reason.
const NO_LOCK: &str = "unable to create lock";

/// What stores and systems say to somebody who may read but not write. Said of a file in the volume it means something
/// else.
const NOT_WRITABLE: &[&str] = &[
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "Error 403",
    "AuthorizationPermissionMismatch",
];

/// What restic says of a file in the repository that it does not ask the store for any more.
pub(super) const GIVEN_UP: &str = "circuit breaker open";

const UNREACHABLE: &[&str] = &[
    GIVEN_UP,
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

/// "… already locked exclusively by PID 7 on host by root (UID 0, GID 0)" and when. Of a machine that one of our locks names its
/// name is enough.
fn holder(words: &str) -> String {
    let about = words.split_once("already locked").map_or(words, |(_, about)| about);
    let about = about.split("the `unlock` command").next().unwrap_or(about);
    cut(&about.split_whitespace().map(plimsoll_repository::machine).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn reason(code: i32, words: &str, volume: Option<&str>) -> &'static str {
        let exit = Exit { status: ExitStatus::from_raw(code << 8), last_words: words.into() };
        classify(&exit, "/r", volume.map(Path::new)).map_or("none", |error| error.reason())
    }

    #[test]
    fn what_every_version_says_has_the_same_reason() {
        for (code, words, expected) in [
            (1, "Fatal: wrong password or no key found", "WrongRepositoryPassword"),
            (
                12,
                r#"{"message_type":"exit_error","code":12,"message":"Fatal: wrong password"}"#,
                "WrongRepositoryPassword",
            ),
            (
                1,
                "Fatal: unable to open config file: stat\nIs there a repository at the following location?\n/r",
                "NotARepository",
            ),
            (10, "", "NotARepository"),
            (
                1,
                "unable to create lock in backend: repository is already locked exclusively by PID 1 on h",
                "RepositoryLocked",
            ),
            (11, "", "RepositoryLocked"),
            (1, "write /r/data/tmp: no space left on device", "RepositoryFull"),
            (
                1,
                "Fatal: Get \"http://h/b\": dial tcp 127.0.0.1:1: connect: connection refused",
                "RepositoryUnreachable",
            ),
            (1, "Fatal: unable to open repository: Access Denied.", "RepositoryCredentialsRejected"),
            (1, "Fatal: something else", "none"),
        ] {
            assert_eq!(reason(code, words, None), expected, "{words}");
        }
        assert_eq!(reason(1, "write /v/x: no space left on device", Some("/v")), "VolumeFull");
    }

    #[test]
    fn only_somebody_elses_lock_is_waited_for_and_not_one_that_cannot_be_written() {
        for (words, expected, refused) in [
            // restic 0.14 puts the cause first and its own words last, behind a stack.
            (
                "open /r/locks/0a1b-tmp-42: permission denied\ngithub.com/restic/restic/internal/backend/local.(*Local).Save\n\
                 \t/build/internal/backend/local/local.go:149\nunable to create lock in backend",
                "RepositoryCredentialsRejected",
                true,
            ),
            (
                "open /r/locks/0a1b-tmp-42: read-only file system\nunable to create lock in backend",
                "RepositoryCredentialsRejected",
                true,
            ),
            (
                "Access Denied.\nclient.PutObject\ngithub.com/restic/restic/internal/backend/s3.(*Backend).Save\n\
                 \t/build/internal/backend/s3/s3.go:307\nunable to create lock in backend",
                "RepositoryCredentialsRejected",
                true,
            ),
            (
                "write /r/locks/0a1b-tmp-42: no space left on device\nunable to create lock in backend",
                "RepositoryFull",
                true,
            ),
            // restic 0.18, without and with --json.
            (
                "unable to create lock in backend: open /r/locks/0a1b-tmp-42: permission denied",
                "RepositoryCredentialsRejected",
                true,
            ),
            (
                r#"{"message_type":"exit_error","code":1,"message":"unable to create lock in backend: client.PutObject: Access Denied."}"#,
                "RepositoryCredentialsRejected",
                true,
            ),
            (
                "unable to create lock in backend: write /r/locks/0a1b-tmp-42: no space left on device",
                "RepositoryFull",
                true,
            ),
            (
                "unable to create lock in backend: client.PutObject: Put \"http://h/b\": dial tcp 127.0.0.1:1: connect: connection refused",
                "RepositoryUnreachable",
                false,
            ),
            (
                "unable to create lock in backend: repository is already locked exclusively by PID 1 on h by root",
                "RepositoryLocked",
                false,
            ),
            ("unable to create lock in backend: something else", "none", false),
            ("Save(<data/0a1b>) returned error: open /v/f: permission denied", "none", false),
        ] {
            assert_eq!(reason(1, words, None), expected, "{words}");
            assert_eq!(reason(1, words, Some("/v")), expected, "while restoring: {words}");
            let exit = Exit { status: ExitStatus::from_raw(1 << 8), last_words: words.into() };
            assert_eq!(refuses_lock(&exit), refused, "{words}");
        }
    }

    #[test]
    fn a_lock_is_named_with_its_holder() {
        for machine in ["node-1", "node-1/0c4e9a1b5d7f2e38.9f86d081884c7d65.f00002a9.1c5e6b"] {
            let words = format!(
                "unable to create lock in backend: repository is already locked exclusively by PID 42 on {machine} by \
                 root\nlock was created at 2026-11-16 05:00:00 (5m ago)\nthe `unlock` command can be used"
            );
            let holder = holder(&words);
            assert!(holder.contains("PID 42 on node-1 by root") && !holder.contains("unlock"), "{holder}");
        }
    }
}
