//! Backup item actions and item block actions.

mod custom_resource_definition;
mod persistent_volume_claim;
mod pod;
mod service_account;

use std::sync::Arc;

use futures::future::BoxFuture;
use plimsoll_select::resources::ResourceMapper;
use serde_json::Value;

use crate::Error;
use crate::cluster::Cluster;
use crate::item_operations::{ItemOperationClient, StartedOperation};
use crate::ports::SupervisedProcess;
use crate::registry::{AppliesTo, Registry, Source};

/// Identifies an object of a cluster or of a backup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId {
    /// `pods`, `deployments.apps`.
    pub group_resource: String,
    /// `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ItemId {
    /// An object with or without a namespace.
    pub fn new(group_resource: &str, namespace: Option<&str>, name: &str) -> Self {
        let (group_resource, namespace) = (group_resource.to_owned(), namespace.map(str::to_owned));
        Self { group_resource, namespace, name: name.to_owned() }
    }

    /// A cluster-scoped object.
    pub fn cluster(group_resource: &str, name: &str) -> Self {
        Self::new(group_resource, None, name)
    }

    /// An object in a namespace.
    pub fn namespaced(group_resource: &str, namespace: &str, name: &str) -> Self {
        Self::new(group_resource, Some(namespace), name)
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

/// Output of a backup item action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackupActionOutput {
    /// The changed item; `None` leaves it unchanged.
    pub item: Option<Value>,
    /// Additional items.
    pub additional: Vec<ItemId>,
    /// An item operation that the action started.
    pub operation: Option<StartedOperation>,
}

/// An action on an item of a backup.
pub trait BackupItemAction: Send + Sync {
    /// Executes the action. `backup` is the Backup object. On an error the item fails and is not in the backup.
    fn execute<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<BackupActionOutput, Error>>;

    /// The client for the operations that it starts.
    fn operation_client(self: Arc<Self>) -> Option<Arc<dyn ItemOperationClient>> {
        None
    }

    /// The process of the action, if it is not this one.
    fn process(&self) -> Option<&dyn SupervisedProcess> {
        None
    }
}

/// The backup item actions.
pub type BackupItemActions = Registry<dyn BackupItemAction>;

/// Determines which items form an item block. Its pods are backed up between the hooks of all of them.
pub trait ItemBlockAction: Send + Sync {
    /// The related items of an item.
    fn related<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<Vec<ItemId>, Error>>;

    /// The process of the action, if it is not this one.
    fn process(&self) -> Option<&dyn SupervisedProcess> {
        None
    }
}

/// The item block actions.
pub type ItemBlockActions = Registry<dyn ItemBlockAction>;

/// The built-in actions; `mapper` resolves the names of resources.
pub async fn built_in(cluster: &Cluster, mapper: &(impl ResourceMapper + ?Sized)) -> Result<BackupItemActions, Error> {
    let mut registry = BackupItemActions::default();
    let mut add = |name: &str, resource: &str, action: Arc<dyn BackupItemAction>| {
        registry.register(Source::BuiltIn(1), name, &AppliesTo::resources([resource]), mapper, action)
    };
    add("velero.io/pv", "persistentvolumeclaims", Arc::new(persistent_volume_claim::PersistentVolumeClaimAction))?;
    add("velero.io/pod", "pods", Arc::new(pod::PodAction))?;
    let accounts = service_account::ServiceAccountAction::new(cluster.clone());
    add("velero.io/service-account", "serviceaccounts", Arc::new(accounts))?;
    if let Some(old) = custom_resource_definition::CrdVersionAction::if_served(cluster).await? {
        add("velero.io/crd-remap-version", "customresourcedefinitions.apiextensions.k8s.io", Arc::new(old))?;
    }
    Ok(registry)
}
