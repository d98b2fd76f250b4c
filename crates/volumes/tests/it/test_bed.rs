//! The embedded API with a location in a directory, its leader, and movers that answer what the test says.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use plimsoll_api::velero::v1::{Backup, BackupSpec, BackupStorageLocation, PodVolumeBackup, TransferPhase};
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::stages::Stages;
use plimsoll_local::fixtures::{eventually, open_api, snapshot_definitions};
use plimsoll_mover::{EnsureOutcome, MoverCommand, MoverError, Outcome};
use plimsoll_operations::leader_election::{Candidate, Leadership, campaign};
use plimsoll_operations::{
    ActiveOperations, HistoryRecord, LeaderClient, OperationRuntime, WRITE_INTERVAL, WriteBudget,
};
use plimsoll_plugin::PluginRegistry;
use plimsoll_progress::{Clock, Operation, Trees, Work};
use plimsoll_volumes::fs_backup::TransferServices;
use plimsoll_volumes::repositories::Repositories;
use plimsoll_volumes::storage_location::StorageLocations;
use plimsoll_volumes::{MoverChoice, VolumeJob};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The namespace of the custom resources.
pub const NAMESPACE: &str = "velero";
/// The namespace of pods and claims.
pub const SHOP: &str = "shop";
pub const NODE: &str = "node-1";
/// The CSI driver of the volumes.
pub const DRIVER: &str = "csi.example.com";
/// A busy machine renews in time.
const TERM: Duration = Duration::from_secs(30);

/// Answers a job with the file that is named after its work, and keeps the job.
const MOVER_SCRIPT: &str = r#"read -r job; printf '%s\n' "$job" >> jobs
    work=$(printf '%s\n' "$job" | sed -E 's/.*"work":[{]?"([a-z]+)".*/\1/'); cat "$work""#;

pub struct TestBed {
    pub client: Client,
    pub leader: LeaderClient,
    pub services: Arc<TransferServices>,
    /// The task tree of the operation.
    pub tree: Operation,
    backup: OwnerReference,
    history: Arc<HistoryRecord>,
    directory: TempDir,
    _leadership: Leadership,
}

impl TestBed {
    /// A cluster with the Backup `nightly` and the location `default`. Movers can open the repositories in it.
    pub async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let definitions = plimsoll_api::crds().into_iter().chain(snapshot_definitions());
        let api = open_api(&directory.path().join("cluster"), definitions, &[NAMESPACE, SHOP]).await;
        let client = api.client(NAMESPACE);
        let candidate = Candidate {
            namespace: NAMESPACE.to_owned(),
            lease: "plimsoll".to_owned(),
            identity: "server".to_owned(),
            term: TERM,
            annotations: [].into(),
        };
        let leadership = campaign(client.clone(), candidate, async || Ok(0)).await.unwrap();
        let leader = LeaderClient::new(client.clone(), NAMESPACE, &leadership);
        let services = services(&leader, &directory);
        let backups: Api<Backup> = Api::namespaced(client.clone(), NAMESPACE);
        let backup = create(&backups, json!({ "metadata": { "name": "nightly" }, "spec": {} })).await;
        let history = Arc::new(HistoryRecord::open(&leader, "Backup", &json!({})).await);
        let bed = Self {
            client,
            leader,
            services,
            tree: Operation::new("test", Clock::system()),
            backup: backup.owner_ref(&()).unwrap(),
            history,
            directory,
            _leadership: leadership,
        };
        bed.create_location("default", json!({})).await;
        bed.answer("ensure", Ok(&Outcome::Ensure(EnsureOutcome { created: true, ..EnsureOutcome::default() })));
        bed.answer("locks", Ok(&Outcome::Locks(Vec::new())));
        bed
    }

    /// What movers answer to a kind of work.
    pub fn answer(&self, work: &str, answer: Result<&Outcome, &MoverError>) {
        let line = match answer {
            Ok(outcome) => json!({ "outcome": outcome }),
            Err(error) => json!({ "error": error }),
        };
        std::fs::write(self.directory.path().join(work), format!("{line}\n")).unwrap();
    }

    /// The jobs that movers have read.
    pub fn jobs(&self) -> Vec<Value> {
        let jobs = std::fs::read_to_string(self.directory.path().join("jobs")).unwrap_or_default();
        jobs.lines().map(|job| serde_json::from_str(job).unwrap()).collect()
    }

    /// What movers were asked to do.
    pub fn work(&self) -> Vec<Value> {
        self.jobs().into_iter().map(|mut job| job["work"].take()).collect()
    }

    /// The directory of the location `default`.
    pub fn bucket(&self) -> PathBuf {
        self.directory.path().join("bucket-default")
    }

    /// Creates a location; `spec` is merged into its spec.
    pub async fn create_location(&self, name: &str, spec: Value) {
        let bucket = self.directory.path().join(format!("bucket-{name}"));
        std::fs::create_dir_all(&bucket).unwrap();
        let mut location = json!({ "metadata": { "name": name },
            "spec": { "provider": "directory", "objectStorage": { "bucket": bucket } } });
        location["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        create(&self.api::<BackupStorageLocation>(), location).await;
    }

    pub fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// The Backup `nightly`, as the owner of transfers.
    pub fn job(&self) -> VolumeJob {
        let stage =
            Stages::plan(&self.tree.root(), &[("volumes", Work::assumed(Duration::from_secs(1)))]).stage("volumes");
        stage.task.start();
        VolumeJob {
            name: "nightly".to_owned(),
            uid: self.backup.uid.clone(),
            owner: self.backup.clone(),
            task: stage.task.clone(),
            stage,
            history: Arc::clone(&self.history),
        }
    }

    /// The filters of a backup of everything.
    pub async fn item_filter(&self) -> ItemFilter {
        let resources = self.leader.cluster.discover().await.unwrap().resources;
        ItemFilter::for_backup(&BackupSpec::default(), None, &resources, &[]).unwrap()
    }

    /// Creates a claim in [`SHOP`] that is bound to a volume of the [`DRIVER`].
    pub async fn create_claim(&self, name: &str) -> Value {
        let volume = json!({ "metadata": { "name": format!("pv-{name}") }, "spec": { "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteOnce"], "csi": { "driver": DRIVER, "volumeHandle": name } } });
        create(&Api::<PersistentVolume>::all(self.client.clone()), volume).await;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), SHOP);
        let claim = json!({ "metadata": { "name": name }, "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "volumeName": format!("pv-{name}"), "resources": { "requests": { "storage": "1Gi" } } } });
        create(&claims, claim).await;
        let bound = Patch::Merge(json!({ "status": { "phase": "Bound" } }));
        let claim = claims.patch_status(name, &PatchParams::default(), &bound).await.unwrap();
        serde_json::to_value(claim).unwrap()
    }

    /// Creates a pod on [`NODE`] that mounts volumes, as the API server shows it.
    pub async fn create_pod(&self, name: &str, volumes: Value, annotations: Value, phase: &str) -> Value {
        let volumes_of_pod = volumes.as_array().unwrap().iter();
        let mounts: Vec<_> =
            volumes_of_pod.map(|volume| json!({ "name": volume["name"], "mountPath": volume["name"] })).collect();
        let pod = json!({ "metadata": { "name": name, "annotations": annotations }, "spec": { "nodeName": NODE,
            "volumes": volumes, "containers": [{ "name": "main", "image": "any", "volumeMounts": mounts }] } });
        let pods = self.pods();
        create(&pods, pod).await;
        let status = Patch::Merge(json!({ "status": { "phase": phase } }));
        serde_json::to_value(pods.patch_status(name, &PatchParams::default(), &status).await.unwrap()).unwrap()
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), SHOP)
    }

    pub async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        self.api::<K>().list(&ListParams::default()).await.unwrap().items
    }

    /// Writes the status of a transfer, as its agent does.
    pub async fn set_status<K>(&self, name: &str, status: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api::<K>().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until there are this many PodVolumeBackups, and completes each with a snapshot.
    pub async fn complete_backups(&self, count: usize) -> Vec<PodVolumeBackup> {
        let transfers = eventually(&format!("{count} PodVolumeBackups"), async || {
            let transfers = self.list::<PodVolumeBackup>().await;
            (transfers.len() == count).then_some(transfers)
        })
        .await;
        for transfer in &transfers {
            self.set_status::<PodVolumeBackup>(&transfer.name_any(), completed("5eed")).await;
        }
        transfers
    }
}

/// The status of a completed backup of 10 bytes.
pub fn completed(snapshot: &str) -> Value {
    json!({ "phase": TransferPhase::Completed.as_str(), "snapshotID": snapshot,
        "progress": { "totalBytes": 10, "bytesDone": 10 } })
}

pub async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

fn services(leader: &LeaderClient, directory: &TempDir) -> Arc<TransferServices> {
    let plugins = PluginRegistry::default();
    let storage = StorageLocations::new(leader.client.clone(), NAMESPACE, Duration::from_mins(1), plugins);
    let line = format!("cd {}; {MOVER_SCRIPT}", directory.path().display());
    let mover = MoverCommand { program: "sh".into(), arguments: vec!["-c".into(), line.into()] };
    let runtime = OperationRuntime {
        leader: leader.clone(),
        active: ActiveOperations::default(),
        write_budget: WriteBudget::start(|| WRITE_INTERVAL),
        scratch: directory.path().to_owned(),
        trees: Trees::default(),
    };
    let repositories = Repositories::new(Arc::new(runtime), Arc::new(storage), false).with_mover(mover);
    Arc::new(TransferServices {
        leader: leader.clone(),
        repositories: Arc::new(repositories),
        mover: MoverChoice::Auto,
        resource_timeout: Duration::from_secs(30),
        agent_heartbeat_timeout: Duration::from_mins(1),
        agent_trees: Trees::default(),
    })
}
