//! The interface to data movers that the host provides.

use futures::future::BoxFuture;
use plimsoll_progress::Frame;
use plimsoll_store::Location;
use secrecy::SecretString;

use super::call::Call;
use super::restic::BackupSummary;
use crate::Error;

/// A repository in restic's format, with its password.
pub struct Repository {
    /// The location.
    pub location: Location,
    /// The password.
    pub password: SecretString,
}

/// A path in a claim of a running pod, to be backed up by the node agent.
pub struct VolumeTransfer<'a> {
    /// The pod's namespace.
    pub namespace: &'a str,
    /// The pod.
    pub pod: &'a str,
    /// Its uid.
    pub uid: String,
    /// The node it runs on.
    pub node: String,
    /// The volume's name in the pod.
    pub volume: String,
    /// The path in the volume.
    pub inner: String,
    /// The path in the container, which is the path in the snapshot.
    pub path: &'a str,
    /// The repository.
    pub repository: Repository,
    /// The tag of the snapshot, unless an earlier process requested this transfer with another tag.
    pub tag: &'a str,
}

/// A line of the output of `plimsoll mover`.
#[derive(Debug)]
pub enum MoverMessage {
    /// A progress frame.
    Progress(Box<Frame>),
    /// The snapshot is complete.
    BackupSummary(BackupSummary),
    /// The job is complete.
    Done,
    /// The job failed.
    Failed(String),
    /// A line without relevant content.
    Ignored,
}

/// `plimsoll mover` in a container, and the node agents.
pub trait DataMovers: Send + Sync {
    /// The job, for stdin of `plimsoll mover`, that opens or creates a repository.
    fn ensure(&self, repository: &Repository) -> Result<String, Error>;
    /// The job that backs up a path.
    fn backup(&self, repository: &Repository, path: &str, tag: &str) -> Result<String, Error>;
    /// Parses a line of its stdout.
    fn parse_message(&self, line: &[u8]) -> MoverMessage;
    /// Backs up a path with the node agent and waits for it; returns the snapshot and its tag. [`DataMovers::clean_up`] deletes
    /// its temporary objects.
    fn transfer<'a>(
        &'a self,
        call: &'a Call,
        request: &'a VolumeTransfer<'a>,
    ) -> BoxFuture<'a, Result<(BackupSummary, String), Error>>;
    /// Cancels the running transfers of a call and deletes their objects.
    fn clean_up<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()>;
}
