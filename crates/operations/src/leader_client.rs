//! The leader's access to the objects of its namespace.

use std::sync::Arc;

use kube::api::{DeleteParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use plimsoll_engine::Error;
use plimsoll_engine::cluster::Cluster;
use serde::de::DeserializeOwned;

use crate::event_recorder::EventRecorder;
use crate::leader_election::{Fence, Leadership};
use crate::operation_record::Holder;

/// The leader's access to the objects of its namespace. Whatever writes checks the fence first.
#[derive(Clone)]
pub struct LeaderClient {
    /// The connection.
    pub client: Client,
    /// The same, for objects as bytes.
    pub cluster: Cluster,
    /// The namespace whose custom resources the leader serves.
    pub namespace: String,
    /// Whether this process may still have effects.
    pub fence: Arc<Fence>,
    /// Larger than that of every leader before.
    pub epoch: u64,
    /// Unique for each process.
    pub identity: String,
    /// Records Events about the objects of the namespace.
    pub events: EventRecorder,
}

impl LeaderClient {
    /// The access of a leader to a namespace.
    pub fn new(client: Client, namespace: &str, leadership: &Leadership) -> Self {
        Self {
            cluster: Cluster::new(client.clone()),
            namespace: namespace.to_owned(),
            fence: Arc::clone(&leadership.fence),
            epoch: leadership.epoch,
            identity: leadership.identity.clone(),
            events: EventRecorder::new(client.clone(), namespace, &leadership.identity),
            client,
        }
    }

    /// Another page size of lists; zero means one page.
    #[must_use]
    pub fn with_page_size(self, page_size: u32) -> Self {
        Self { cluster: self.cluster.with_page_size(page_size), ..self }
    }

    /// The objects of a kind in the leader's namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// This process, as the holder of operations.
    pub fn holder(&self) -> Holder {
        Holder { epoch: self.epoch, fence: Arc::clone(&self.fence), identity: self.identity.clone() }
    }

    /// Deletes an object, unless it is another one of the same name by now; one that is gone already is a success.
    pub async fn delete_same<K>(&self, name: &str, uid: &str) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        self.fence.check()?;
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.api::<K>().delete(name, &parameters).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            Err(error) => Err(Error::api(format!("delete {} {name}", K::kind(&())), error)),
        }
    }

    /// Deletes an object; one that is gone already is a success.
    pub async fn delete<K>(&self, name: &str) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        self.fence.check()?;
        match self.api::<K>().delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(Error::api(format!("delete {} {name}", K::kind(&())), error)),
        }
    }
}
