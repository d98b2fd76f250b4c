//! What changes an object on its way back: built-in actions and, later, plugin processes, behind one trait.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::operations::Background;
use crate::ports::Supervised;

/// Names an object of the backup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identifier {
    /// `pods`, `deployments.apps`.
    pub group_resource: String,
    /// The namespace it had in the backup; none for what has no namespace.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl Identifier {
    /// An object without a namespace.
    pub fn cluster(group_resource: &str, name: &str) -> Self {
        Self { group_resource: group_resource.to_owned(), namespace: None, name: name.to_owned() }
    }

    /// An object in a namespace.
    pub fn namespaced(group_resource: &str, namespace: &str, name: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::cluster(group_resource, name) }
    }
}

impl std::fmt::Display for Identifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = plimsoll_archive::resource_list::entry(self.namespace.as_deref(), &self.name);
        write!(f, "{} {path}", self.group_resource)
    }
}

/// What an action gets to see.
#[derive(Debug)]
pub struct Input<'a> {
    /// The object as the actions before left it: without status and identity, still in its old namespace.
    pub item: Value,
    /// The object as it lies in the backup.
    pub from_backup: &'a Value,
    /// The Restore, as the API server has it.
    pub restore: &'a Value,
}

/// What an action says.
#[derive(Debug, Default, PartialEq)]
pub struct Output {
    /// The object, changed or not.
    pub item: Value,
    /// Objects of the backup that must be restored first.
    pub additional: Vec<Identifier>,
    /// Whether the object is left out.
    pub skip: bool,
    /// Names work that goes on in the background.
    pub operation: Option<String>,
    /// Whether the additional items must be ready before the object is created, and how long that may take; a zero means
    /// the restore's own limit.
    pub wait_for_additional: Option<Duration>,
    /// What its user should know: warnings of the restore.
    pub warnings: Vec<String>,
}

impl Output {
    /// The object, and nothing else.
    pub fn of(item: Value) -> Self {
        Self { item, ..Self::default() }
    }
}

/// Which resources an action may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adds {
    /// None.
    Nothing,
    /// Objects of these.
    These(&'static [&'static str]),
    /// Whatever it likes: plugins.
    Anything,
}

/// Changes objects on their way back. Its name, and which objects it wants, are said when it is registered.
///
/// # Guarantees
/// An action is asked once for each object in an attempt. Several objects may be asked about at the same time. An error
/// fails the object, not the restore.
pub trait RestoreItemAction: Send + Sync {
    /// Changes one object.
    fn execute<'a>(&'a self, input: Input<'a>) -> BoxFuture<'a, Result<Output, String>>;

    /// Which resources it may ask for. While an action that may add is still to run, the total grows.
    fn adds(&self) -> Adds {
        Adds::Anything
    }

    /// Who answers for the work that it began.
    fn background(self: Arc<Self>) -> Option<Arc<dyn Background>> {
        None
    }

    /// The process that answers, if it is not this one.
    fn process(&self) -> Option<&dyn Supervised> {
        None
    }

    /// Whether the items it asked for are ready; only asked when it wanted to wait for them.
    fn additional_ready<'a>(
        &'a self,
        additional: &'a [Identifier],
        restore: &'a Value,
    ) -> BoxFuture<'a, Result<bool, String>> {
        let _ = (additional, restore);
        Box::pin(async { Ok(true) })
    }
}
