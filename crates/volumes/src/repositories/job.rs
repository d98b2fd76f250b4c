//! Runs the jobs of repositories, each in a process of its own.

use std::time::Duration;

use plimsoll_mover::{Job, MoverCommand, MoverError, Outcome, Repository, Work, spawn};
use plimsoll_progress::Task;

use super::Repositories;
use super::access::{RepositoryKey, repository_name};

/// Timeout of a job of the server. Only a storage that hangs takes longer.
const JOB_TIMEOUT: Duration = Duration::from_mins(15);

impl Repositories {
    /// Runs one job of a repository in a mover process.
    pub(super) async fn run_mover(
        &self,
        key: &RepositoryKey,
        repository: Repository,
        work: Work,
        task: &Task,
    ) -> Result<Outcome, MoverError> {
        let name = repository.location.name();
        let job = Job::new(repository_name(key), key.kind(), repository, work);
        let command = self.mover.clone().map_or_else(MoverCommand::this_program, Ok)?;
        let started = spawn(&command, &job, task)?;
        tokio::time::timeout(JOB_TIMEOUT, started.wait()).await.unwrap_or_else(|_| {
            let cause = format!("no answer within {} minutes", JOB_TIMEOUT.as_secs() / 60);
            Err(MoverError::Unreachable { repository: name, cause })
        })
    }
}
