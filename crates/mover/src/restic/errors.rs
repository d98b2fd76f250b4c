//! Maps exit codes and error texts of restic to errors. The exit codes are specific since 0.17; before, only the texts are.

use std::path::Path;

use super::messages::exit_message;
use crate::MoverError;
use crate::error_patterns::{
    ACCESS_DENIED, ErrorRow, ErrorText, NO_SPACE, UNREACHABLE, credentials_rejected, no_space, repository_not_found,
    unreachable, wrong_password,
};
use crate::program::{Exit, truncate};

/// The error of a failed restic, if it is a known one. `volume` is the target directory of a restore.
pub(super) fn classify(exit: &Exit, name: &str, volume: Option<&Path>) -> Option<MoverError> {
    let text = exit_message(&exit.stderr_tail);
    let repository = name.to_owned();
    match exit.code() {
        Some(12) => Some(MoverError::WrongPassword { repository }),
        Some(11) => Some(MoverError::Locked { repository, holder: holder(&text) }),
        Some(10) => Some(MoverError::RepositoryNotFound { repository }),
        _ => classify_text(&text, name, volume),
    }
}

/// restic's errors.
const ERRORS: &[ErrorRow] = &[
    (&[&["wrong password or no key found"]], wrong_password),
    (&[&["already locked"]], locked),
    (&[NO_SPACE], no_space),
    (&[&["no matching ID", "no snapshot found"]], snapshot_not_found),
    (&[&["Is there a repository at the following location?", "repository does not exist"]], repository_not_found),
    (&[&[CIRCUIT_BREAKER_OPEN], UNREACHABLE], unreachable),
    (&[ACCESS_DENIED], credentials_rejected),
];

/// Further errors of a lock file.
const LOCK_ERRORS: &[ErrorRow] = &[(&[READ_ONLY], credentials_rejected)];

/// The error of a text, if it is a known one.
pub(super) fn classify_text(text: &str, name: &str, volume: Option<&Path>) -> Option<MoverError> {
    let is_lock_error = text.contains(LOCK_FAILED);
    // An error of a lock file is never the volume's.
    let volume = volume.filter(|_| !is_lock_error);
    let failed = ErrorText { text, cause: truncate(text), repository: name, volume };
    failed.classify(ERRORS).or_else(|| is_lock_error.then(|| failed.classify(LOCK_ERRORS)).flatten())
}

fn locked(failed: &ErrorText<'_>) -> MoverError {
    MoverError::Locked { repository: failed.repository.to_owned(), holder: holder(failed.text) }
}

fn snapshot_not_found(failed: &ErrorText<'_>) -> MoverError {
    MoverError::SnapshotNotFound { snapshot: "requested".into(), repository: failed.repository.to_owned() }
}

/// Whether restic failed because the store rejects lock files. Read-only commands can continue without one.
pub(super) fn is_lock_denied(exit: &Exit) -> bool {
    let text = exit_message(&exit.stderr_tail);
    let is_denied = |error| matches!(error, MoverError::CredentialsRejected { .. } | MoverError::RepositoryFull { .. });
    !exit.status.success() && text.contains(LOCK_FAILED) && classify_text(&text, "", None).is_some_and(is_denied)
}

/// restic's error without a lock, for any reason.
const LOCK_FAILED: &str = "unable to create lock";

/// Errors of stores and systems with read-only access. They have this meaning only for a lock file, not for a file in the volume.
const READ_ONLY: &[&str] = &[
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "Error 403",
    "AuthorizationPermissionMismatch",
];

/// restic's error for a pack that it no longer requests from the store.
pub(super) const CIRCUIT_BREAKER_OPEN: &str = "circuit breaker open";

/// The holder in "… already locked exclusively by PID 7 on host by root (UID 0, GID 0)", with the time. Our machine names are
/// shortened.
fn holder(text: &str) -> String {
    let description = text.split_once("already locked").map_or(text, |(_, description)| description);
    let description = description.split("the `unlock` command").next().unwrap_or(description);
    truncate(&description.split_whitespace().map(plimsoll_repository::machine).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn reason(code: i32, text: &str, volume: Option<&str>) -> &'static str {
        let exit = Exit { status: ExitStatus::from_raw(code << 8), stderr_tail: text.into() };
        classify(&exit, "/r", volume.map(Path::new)).map_or("none", |error| error.reason())
    }

    #[test]
    fn errors_of_all_versions_have_the_same_reason() {
        for (code, text, expected) in [
            (1, "Fatal: wrong password or no key found", "WrongRepositoryPassword"),
            (
                12,
                r#"{"message_type":"exit_error","code":12,"message":"Fatal: wrong password"}"#,
                "WrongRepositoryPassword",
            ),
            (
                1,
                "Fatal: unable to open config file: stat\nIs there a repository at the following location?\n/r",
                "RepositoryNotFound",
            ),
            (10, "", "RepositoryNotFound"),
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
            assert_eq!(reason(code, text, None), expected, "{text}");
        }
        assert_eq!(reason(1, "write /v/x: no space left on device", Some("/v")), "VolumeFull");
    }

    #[test]
    fn a_lock_file_that_cannot_be_written_is_not_a_locked_repository() {
        for (text, expected, is_denied) in [
            // restic 0.14 prints the cause first and its own error last, after a stack trace.
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
            assert_eq!(reason(1, text, None), expected, "{text}");
            assert_eq!(reason(1, text, Some("/v")), expected, "while restoring: {text}");
            let exit = Exit { status: ExitStatus::from_raw(1 << 8), stderr_tail: text.into() };
            assert_eq!(is_lock_denied(&exit), is_denied, "{text}");
        }
    }

    #[test]
    fn a_lock_error_contains_the_holder() {
        for machine in ["node-1", "node-1/0c4e9a1b5d7f2e38.9f86d081884c7d65.f00002a9.1c5e6b"] {
            let text = format!(
                "unable to create lock in backend: repository is already locked exclusively by PID 42 on {machine} by \
                 root\nlock was created at 2026-11-16 05:00:00 (5m ago)\nthe `unlock` command can be used"
            );
            let holder = holder(&text);
            assert!(holder.contains("PID 42 on node-1 by root") && !holder.contains("unlock"), "{holder}");
        }
    }
}
