//! Secrets and ConfigMaps that a driver reads in the namespace of a claim, such as the token for the key of an encrypted volume.
//!
//! The claims of transfers are in the server's namespace. For as long as a transfer needs them, the objects that the ConfigMap of
//! the node agents names are copied there from the namespace of the application. A copy is owned by the transfers that need it.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use plimsoll_api::labels;
use plimsoll_engine::Error;
use plimsoll_operations::LeaderClient;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::ExposedTransfer;
use crate::node_agent_config::DriverObjects;

/// Label of a copy.
const COPY: &str = "plimsoll.dev/driver-object";
/// Annotation of a copy: the namespace of its original.
const ORIGINAL: &str = "plimsoll.dev/copied-from";

/// A kind of which a driver needs objects.
trait DriverObject:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
    /// The same content with other metadata.
    fn with_metadata(self, metadata: ObjectMeta) -> Self;
}

impl DriverObject for Secret {
    fn with_metadata(self, metadata: ObjectMeta) -> Self {
        Self { metadata, ..self }
    }
}

impl DriverObject for ConfigMap {
    fn with_metadata(self, metadata: ObjectMeta) -> Self {
        Self { metadata, ..self }
    }
}

/// Why there is no copy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotCopied {
    /// There is no such object to copy.
    Missing(String),
    /// It waits for something.
    Waiting(String),
}

/// Copies what the driver needs for a claim of the namespace `from`.
pub(super) async fn copy_all<T: ExposedTransfer>(
    leader: &LeaderClient,
    owner: &T,
    from: &str,
    needed: &DriverObjects,
) -> Result<Result<(), NotCopied>, Error> {
    if from == leader.namespace {
        return Ok(Ok(()));
    }
    let owner = owner_reference(owner);
    for name in &needed.secret_names {
        if let Err(why) = copy::<Secret>(leader, &owner, from, name).await? {
            return Ok(Err(why));
        }
    }
    for name in &needed.config_map_names {
        if let Err(why) = copy::<ConfigMap>(leader, &owner, from, name).await? {
            return Ok(Err(why));
        }
    }
    Ok(Ok(()))
}

/// Deletes the copies that only this transfer needed.
pub(super) async fn release_all<T: ExposedTransfer>(leader: &LeaderClient, owner: &T) -> Result<(), Error> {
    let uid = owner.uid().unwrap_or_default();
    release::<Secret>(leader, &uid).await?;
    release::<ConfigMap>(leader, &uid).await
}

fn owner_reference<T: ExposedTransfer>(owner: &T) -> OwnerReference {
    OwnerReference {
        api_version: T::api_version(&()).into_owned(),
        kind: T::kind(&()).into_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

async fn copy<K: DriverObject>(
    leader: &LeaderClient,
    owner: &OwnerReference,
    from: &str,
    name: &str,
) -> Result<Result<(), NotCopied>, Error> {
    let (api, kind) = (leader.api::<K>(), K::kind(&()));
    let found = api.get_opt(name).await.map_err(|e| Error::api(format!("read {kind} {name}"), e))?;
    let Some(found) = found else { return create(&leader.client, &api, owner, from, name).await };
    match found.annotations().get(ORIGINAL) {
        // An object of the user: the driver reads that.
        None => Ok(Ok(())),
        Some(original) if original == from && found.meta().deletion_timestamp.is_none() => {
            let mut owners = found.owner_references().to_vec();
            if owners.iter().all(|one| one.uid != owner.uid) {
                owners.push(owner.clone());
                set_owners(&api, &found, &owners).await?;
            }
            Ok(Ok(()))
        }
        Some(original) => {
            let why = format!("for {kind} {name} of namespace {original}, which another transfer needs, to be gone");
            Ok(Err(NotCopied::Waiting(why)))
        }
    }
}

async fn create<K: DriverObject>(
    client: &Client,
    api: &Api<K>,
    owner: &OwnerReference,
    from: &str,
    name: &str,
) -> Result<Result<(), NotCopied>, Error> {
    let kind = K::kind(&());
    let originals: Api<K> = Api::namespaced(client.clone(), from);
    let original = originals.get_opt(name).await.map_err(|e| Error::api(format!("read {kind} {from}/{name}"), e))?;
    let Some(original) = original else {
        return Ok(Err(NotCopied::Missing(format!("{kind} {from}/{name}"))));
    };
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some([(COPY, "true"), (labels::EXCLUDE_FROM_BACKUP, "true")].map(owned).into()),
        annotations: Some([(ORIGINAL, from)].map(owned).into()),
        owner_references: Some(vec![owner.clone()]),
        ..ObjectMeta::default()
    };
    match api.create(&PostParams::default(), &original.with_metadata(metadata)).await {
        // Another transfer was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            Ok(Err(NotCopied::Waiting(format!("for {kind} {name} to be copied"))))
        }
        answer => answer.map(|_| Ok(())).map_err(|e| Error::api(format!("create {kind} {name}"), e)),
    }
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

async fn release<K: DriverObject>(leader: &LeaderClient, uid: &str) -> Result<(), Error> {
    let (api, kind) = (leader.api::<K>(), K::kind(&()));
    let copies = api.list(&ListParams::default().labels(COPY)).await;
    for copy in copies.map_err(|e| Error::api(format!("list copies of {kind}s"), e))? {
        let (own, others): (Vec<_>, Vec<_>) = copy.owner_references().iter().cloned().partition(|one| one.uid == uid);
        match (own.is_empty(), others.is_empty()) {
            (true, _) => {}
            (false, false) => set_owners(&api, &copy, &others).await?,
            (false, true) => delete(&api, &copy).await?,
        }
    }
    Ok(())
}

/// Fails if the object has changed meanwhile: then this is repeated with the new one.
async fn set_owners<K: DriverObject>(api: &Api<K>, copy: &K, owners: &[OwnerReference]) -> Result<(), Error> {
    let name = copy.name_any();
    let metadata = json!({ "resourceVersion": copy.resource_version(), "ownerReferences": owners });
    let written = api.patch(&name, &PatchParams::default(), &Patch::Merge(json!({ "metadata": metadata }))).await;
    written.map(drop).map_err(|e| Error::api(format!("write {} {name}", K::kind(&())), e))
}

async fn delete<K: DriverObject>(api: &Api<K>, copy: &K) -> Result<(), Error> {
    let name = copy.name_any();
    let unchanged = Preconditions { resource_version: copy.resource_version(), uid: copy.uid() };
    let parameters = DeleteParams { preconditions: Some(unchanged), ..DeleteParams::default() };
    match api.delete(&name, &parameters).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop).map_err(|e| Error::api(format!("delete {} {name}", K::kind(&())), e)),
    }
}
