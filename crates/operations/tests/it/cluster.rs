//! The in-process API with our CustomResourceDefinitions, and the processes that want to lead on it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use plimsoll_api::plimsoll::v1alpha1::OperationStatus;
use plimsoll_api::velero::v1::Backup;
use plimsoll_local::fixtures::{eventually, open_api};
use plimsoll_operations::leader_election::{Candidate, Leadership, campaign};
use plimsoll_operations::{ActiveOperations, LeaderClient, OperationRuntime, Subject, WriteBudget};
use plimsoll_progress::Trees;
use serde_json::{Value, json};
use tempfile::TempDir;

pub const NAMESPACE: &str = "velero";
pub const LEASE: &str = "plimsoll";
/// A busy machine renews in time, and a leader notices within two seconds that its Lease is gone.
pub const TERM: Duration = Duration::from_secs(8);

pub struct Cluster {
    pub client: Client,
    api: plimsoll_local::Api,
    directory: TempDir,
}

impl Cluster {
    pub async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let api = open_api(&directory.path().join("api"), plimsoll_api::crds(), &[NAMESPACE]).await;
        let client = api.client(NAMESPACE);
        Self { client, api, directory }
    }

    pub fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// A client whose requests get no answer once the flag is set.
    pub fn unreliable_client(&self) -> (Client, Arc<AtomicBool>) {
        let (api, cut) = (self.api.clone(), Arc::new(AtomicBool::new(false)));
        let is_cut = Arc::clone(&cut);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (api, is_cut) = (api.clone(), Arc::clone(&is_cut));
            async move {
                if is_cut.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                Ok::<_, std::convert::Infallible>(api.handle(request).await)
            }
        });
        (Client::new(service, NAMESPACE), cut)
    }

    /// A client, and the paths that it has read.
    pub fn recording_client(&self) -> (Client, Arc<Mutex<Vec<String>>>) {
        let (api, paths) = (self.api.clone(), Arc::<Mutex<Vec<String>>>::default());
        let recorded = Arc::clone(&paths);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            if *request.method() == http::Method::GET {
                recorded.lock().unwrap().push(request.uri().path().to_owned());
            }
            let api = api.clone();
            async move { Ok::<_, std::convert::Infallible>(api.handle(request).await) }
        });
        (Client::new(service, NAMESPACE), paths)
    }

    /// Waits until a process leads.
    pub async fn lead(&self, identity: &str) -> Leadership {
        campaign(self.client.clone(), candidate(identity, TERM), async || Ok(0)).await.unwrap()
    }

    /// Takes the Lease away from its holder, as an administrator can.
    pub async fn clear_lease(&self) {
        let patch = Patch::Merge(json!({ "spec": { "holderIdentity": null } }));
        self.api::<Lease>().patch(LEASE, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn lease_holder(&self) -> Option<String> {
        self.api::<Lease>().get(LEASE).await.unwrap().spec.unwrap().holder_identity
    }

    /// What a leader needs to run operations.
    pub fn runtime(&self, leadership: &Leadership) -> Arc<OperationRuntime> {
        self.runtime_of(self.client.clone(), leadership)
    }

    /// The same, with another client.
    pub fn runtime_of(&self, client: Client, leadership: &Leadership) -> Arc<OperationRuntime> {
        Arc::new(OperationRuntime {
            leader: LeaderClient::new(client, NAMESPACE, leadership),
            active: ActiveOperations::default(),
            write_budget: WriteBudget::start(|| Duration::from_millis(50)),
            scratch: self.directory.path().to_owned(),
            trees: Trees::default(),
        })
    }

    pub async fn create_backup(&self, name: &str) -> Subject {
        let backup: Backup = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": {} })).unwrap();
        let backup = self.api::<Backup>().create(&PostParams::default(), &backup).await.unwrap();
        Subject {
            api_version: "velero.io/v1".to_owned(),
            kind: "Backup".to_owned(),
            namespace: NAMESPACE.to_owned(),
            name: name.to_owned(),
            uid: backup.uid().unwrap(),
            verb: "backup",
        }
    }

    /// The status of a Backup.
    pub async fn status(&self, name: &str) -> Value {
        let backup = self.api::<Backup>().get(name).await.unwrap();
        serde_json::to_value(backup.status).unwrap()
    }

    /// Waits until a Backup has a phase.
    pub async fn wait_for_phase(&self, name: &str, phase: &str) -> Value {
        eventually(&format!("backup {name} is {phase}"), async || {
            Some(self.status(name).await).filter(|status| status["phase"] == phase)
        })
        .await
    }

    /// Waits until the Operation of a Backup has a status that fits.
    pub async fn wait_for_operation(&self, name: &str, fits: impl Fn(&OperationStatus) -> bool) -> OperationStatus {
        eventually(&format!("the operation of backup {name} has the expected status"), async || {
            let found =
                self.api::<plimsoll_api::plimsoll::v1alpha1::Operation>().get_opt(&format!("backup-{name}")).await;
            found.unwrap().and_then(|operation| operation.status).filter(|status| fits(status))
        })
        .await
    }

    /// The names of the pages of all journals.
    pub async fn journal_pages(&self) -> Vec<String> {
        let pages = ListParams::default().labels("plimsoll.dev/journal-of");
        self.api::<ConfigMap>().list(&pages).await.unwrap().items.iter().map(ResourceExt::name_any).collect()
    }
}

pub fn candidate(identity: &str, term: Duration) -> Candidate {
    Candidate {
        namespace: NAMESPACE.to_owned(),
        lease: LEASE.to_owned(),
        identity: identity.to_owned(),
        term,
        annotations: BTreeMap::new(),
    }
}
