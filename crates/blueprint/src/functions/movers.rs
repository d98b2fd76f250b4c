//! Movers that this crate does not know: whoever runs phases brings them along.

use futures::future::BoxFuture;
use plimsoll_progress::Frame;
use plimsoll_store::Location;
use secrecy::SecretString;

use super::call::Call;
use super::restic::Saved;
use crate::Error;

/// A repository of restic's format and what opens it.
pub struct Repository {
    /// Where it is.
    pub location: Location,
    /// What opens it.
    pub password: SecretString,
}

/// A path in a claim of a running pod that is to be backed up from outside of the pod.
pub struct Transfer<'a> {
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
    /// The path below the volume.
    pub inner: String,
    /// The path as the container sees it: what the snapshot has.
    pub path: &'a str,
    /// The repository.
    pub repository: Repository,
    /// The tag of the snapshot, unless an earlier process has asked for this transfer with another one.
    pub tag: &'a str,
}

/// What a line of our own program says.
#[derive(Debug)]
pub enum Said {
    /// How far it is.
    Progress(Box<Frame>),
    /// The snapshot is made.
    Saved(Saved),
    /// What was asked for is done.
    Done,
    /// It failed.
    Failed(String),
    /// Nothing that matters here.
    Nothing,
}

/// Our own program in a container, and the agents of nodes.
pub trait Movers: Send + Sync {
    /// What our program reads on its standard input to see that a repository is there, or to make it.
    fn ensure(&self, repository: &Repository) -> Result<String, Error>;
    /// What it reads there to back up a path.
    fn backup(&self, repository: &Repository, path: &str, tag: &str) -> Result<String, Error>;
    /// Understands a line of its standard output.
    fn understand(&self, line: &[u8]) -> Said;
    /// Has the agent of a node back up a path, and waits for that: the snapshot and its tag. Whatever it needs for this goes
    /// with [`Movers::clean_up`].
    fn transfer<'a>(
        &'a self,
        call: &'a Call,
        wanted: &'a Transfer<'a>,
    ) -> BoxFuture<'a, Result<(Saved, String), Error>>;
    /// Removes what transfers of a call have left, and stops those that still run.
    fn clean_up<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()>;
}
