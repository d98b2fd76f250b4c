//! Jobs for `plimsoll mover` and its messages.

use plimsoll_blueprint::Error;
use plimsoll_blueprint::functions::BackupSummary;
use plimsoll_blueprint::functions::data_movers::{MoverMessage, Repository};
use plimsoll_mover::{self as mover, Backup, Job, MoverKind, Outcome, Work};
use secrecy::ExposeSecret;

/// Length of a snapshot id in outputs, as in Kanister.
const SHORT_ID_LENGTH: usize = 8;

/// The repository in the format of the mover.
pub fn repository(repository: &Repository) -> mover::Repository {
    mover::Repository {
        location: mover::RepositoryLocation::from(&repository.location),
        password: mover::Secret::new(repository.password.expose_secret()),
    }
}

/// The job that opens or creates a repository.
pub fn ensure_repository(repository: mover::Repository) -> Job {
    Job::new("repository", MoverKind::BuiltIn, repository, Work::Ensure)
}

/// The job that backs up a path.
pub fn backup(repository: mover::Repository, path: &str, tag: &str) -> Job {
    let mut backup = Backup::new(path, path, [(tag.to_owned(), String::new())].into());
    backup.at = Some(path.into());
    Job::new("backup", MoverKind::BuiltIn, repository, Work::Backup(backup))
}

/// The line for stdin of the mover.
pub fn to_line(job: &Job) -> Result<String, Error> {
    let text = serde_json::to_string(job).map_err(|error| Error::Unsupported(error.to_string()))?;
    Ok(text + "\n")
}

/// Parses a line of stdout of the mover.
pub fn parse_message(line: &[u8]) -> MoverMessage {
    match mover::parse_message(line) {
        Ok(mover::MoverMessage::Progress(frame)) => MoverMessage::Progress(frame),
        Ok(mover::MoverMessage::Result(Ok(Outcome::Backup(outcome)))) => backup_message(&outcome),
        Ok(mover::MoverMessage::Result(Ok(_))) => MoverMessage::Done,
        Ok(mover::MoverMessage::Result(Err(error))) => MoverMessage::Failed(error.to_string()),
        // Messages of a shell or a loader arrive on the other stream too.
        Err(_) => MoverMessage::Ignored,
    }
}

/// A backup that lacks files has failed, as with restic.
fn backup_message(outcome: &mover::BackupOutcome) -> MoverMessage {
    if let Some(first) = outcome.problems.named.first() {
        let count = outcome.problems.count;
        return MoverMessage::Failed(format!(
            "{count} files could not be read, among them {}: {}",
            first.path, first.cause
        ));
    }
    MoverMessage::BackupSummary(BackupSummary {
        id: short_id(outcome.snapshot.as_deref().unwrap_or_default()),
        files: outcome.files,
        size: outcome.bytes,
        added: outcome.added.unwrap_or(0),
    })
}

/// The short form of a snapshot id.
pub fn short_id(snapshot: &str) -> String {
    snapshot.chars().take(SHORT_ID_LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_without_problems_has_a_summary_and_one_with_problems_has_failed() {
        let mut outcome =
            mover::BackupOutcome { snapshot: Some("0123456789".into()), bytes: 7, files: 1, ..Default::default() };
        assert!(matches!(
            backup_message(&outcome),
            MoverMessage::BackupSummary(saved) if saved.id == "01234567" && saved.size == 7
        ));
        outcome.problems.count = 1;
        outcome.problems.named.push(mover::Problem { path: "a".into(), cause: "denied".into() });
        assert!(matches!(
            backup_message(&outcome),
            MoverMessage::Failed(why) if why.contains("among them a: denied")
        ));
    }

    #[test]
    fn a_line_that_is_no_message_is_ignored() {
        assert!(matches!(parse_message(b"sh: warning"), MoverMessage::Ignored));
    }
}
