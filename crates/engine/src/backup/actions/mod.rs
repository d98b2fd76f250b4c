//! What is done to an item on its way into a backup, and what else must come with it.

mod claim;
mod definition;
mod pod;
mod service_account;

use std::sync::Arc;

use futures::future::BoxFuture;
use plimsoll_select::resources::ResourceMapper;
use serde_json::Value;

use crate::Error;
use crate::cluster::Cluster;
use crate::operations::{Background, Begun};
use crate::ports::Supervised;
use crate::registry::{AppliesTo, Registry, Source};

/// Names an object of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId {
    /// `pods`, `deployments.apps`.
    pub group_resource: String,
    /// None for what has no namespace.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ItemId {
    /// Names an object.
    pub fn new(group_resource: &str, namespace: Option<&str>, name: &str) -> Self {
        let (group_resource, namespace) = (group_resource.to_owned(), namespace.map(str::to_owned));
        Self { group_resource, namespace, name: name.to_owned() }
    }
}

impl std::fmt::Display for ItemId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.group_resource, self.name),
            None => write!(f, "{} {}", self.group_resource, self.name),
        }
    }
}

/// What an action answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The changed item; `None` leaves it as it is, byte for byte.
    pub item: Option<Value>,
    /// What must be in the backup too.
    pub additional: Vec<ItemId>,
    /// Work that goes on in the background.
    pub operation: Option<Begun>,
}

/// Does something to an item on its way into a backup.
pub trait BackupItemAction: Send + Sync {
    /// Looks at an item. `backup` is the Backup as it stands in the cluster. An error keeps the item out of the backup, and
    /// is counted.
    fn execute<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<Answer, Error>>;

    /// Who answers for the work that it began.
    fn background(self: Arc<Self>) -> Option<Arc<dyn Background>> {
        None
    }

    /// The process that answers, if it is not this one.
    fn process(&self) -> Option<&dyn Supervised> {
        None
    }
}

/// Actions for items of a backup.
pub type BackupItemActions = Registry<dyn BackupItemAction>;

/// Says which items belong together: pods among them are backed up between the hooks of all of them.
pub trait ItemBlockAction: Send + Sync {
    /// What belongs to an item.
    fn related<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<Vec<ItemId>, Error>>;

    /// The process that answers, if it is not this one.
    fn process(&self) -> Option<&dyn Supervised> {
        None
    }
}

/// Actions that say which items of a backup belong together.
pub type ItemBlockActions = Registry<dyn ItemBlockAction>;

/// The built-in actions, for a cluster whose resources `lookup` knows.
pub async fn built_in(cluster: &Cluster, mapper: &(impl ResourceMapper + ?Sized)) -> Result<BackupItemActions, Error> {
    let mut registry = BackupItemActions::default();
    let mut add = |name: &str, resource: &str, action: Arc<dyn BackupItemAction>| {
        registry.register(Source::BuiltIn(1), name, &AppliesTo::resources([resource]), mapper, action)
    };
    add("velero.io/pv", "persistentvolumeclaims", Arc::new(claim::BoundClaim))?;
    add("velero.io/pod", "pods", Arc::new(pod::PodNeeds))?;
    let accounts = service_account::AccountRoles::new(cluster.clone());
    add("velero.io/service-account", "serviceaccounts", Arc::new(accounts))?;
    if let Some(old) = definition::OldDefinitions::where_served(cluster).await? {
        add("velero.io/crd-remap-version", "customresourcedefinitions.apiextensions.k8s.io", Arc::new(old))?;
    }
    Ok(registry)
}
