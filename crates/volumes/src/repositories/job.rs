//! Runs the jobs of repositories, each in a process of its own.

use std::time::Duration;

use plimsoll_mover::{Job, MoverCommand, MoverError, MoverProcess, Outcome, Repository, Work, spawn};
use plimsoll_operations::CancellationToken;
use plimsoll_progress::Task;

use super::Repositories;
use super::access::{RepositoryKey, repository_name};

/// Timeout of a job of the server. Only a storage that hangs takes longer.
const JOB_TIMEOUT: Duration = Duration::from_mins(15);

impl Repositories {
    /// Runs one short job of a repository in a mover process.
    pub(super) async fn run_mover(
        &self,
        key: &RepositoryKey,
        repository: Repository,
        work: Work,
        task: &Task,
    ) -> Result<Outcome, MoverError> {
        let name = repository.location.name();
        let started = self.start_mover(key, repository, work, task)?;
        tokio::time::timeout(JOB_TIMEOUT, started.wait()).await.unwrap_or_else(|_| {
            let cause = format!("no answer within {} minutes", JOB_TIMEOUT.as_secs() / 60);
            Err(MoverError::Unreachable { repository: name, cause })
        })
    }

    /// Runs one job of a repository in a mover process, for as long as it takes, or until it is cancelled.
    pub(super) async fn run_long_mover(
        &self,
        key: &RepositoryKey,
        repository: Repository,
        work: Work,
        task: &Task,
        cancel: &CancellationToken,
    ) -> Result<Outcome, MoverError> {
        let started = self.start_mover(key, repository, work, task)?;
        let canceller = started.canceller();
        let mut outcome = std::pin::pin!(started.wait());
        tokio::select! {
            outcome = &mut outcome => outcome,
            () = cancel.cancelled() => {
                canceller.cancel();
                outcome.await
            }
        }
    }

    /// Starts a job of a repository in a mover process.
    fn start_mover(
        &self,
        key: &RepositoryKey,
        repository: Repository,
        work: Work,
        task: &Task,
    ) -> Result<MoverProcess, MoverError> {
        let job = Job::new(repository_name(key), key.kind(), repository, work);
        let command = self.mover.clone().map_or_else(MoverCommand::this_program, Ok)?;
        spawn(&command, &job, task)
    }
}
