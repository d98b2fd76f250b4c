//! The driver itself: Identity, Controller and Node of the container storage interface, and its registration with the kubelet.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, Ready, ready};
use tonic::Status;

use super::DRIVER;
use super::directories::{Directories, SnapshotFacts};
use super::services::Services;
use super::wire::{
    CONTROLLER_SERVICE, CREATE_DELETE_SNAPSHOT, CREATE_DELETE_VOLUME, Capabilities, ContentSource,
    CreateSnapshotRequest, CreateVolumeRequest, CreateVolumeResponse, DeleteRequest, Empty, LIST_SNAPSHOTS,
    ListSnapshotsRequest, ListSnapshotsResponse, NodeInfo, NodePublishVolumeRequest, NodeUnpublishVolumeRequest,
    PluginInfo, Registration, RegistrationStatus, Snapshot, SnapshotEntry, Volume,
};
use crate::cluster::NODE;
use crate::process::Process;

/// A class's parameter that makes the driver misbehave: [`REFUSE`] or [`BUSY`].
pub const FAULT: &str = "fault";
/// Every request is refused, for ever.
pub const REFUSE: &str = "refuse";
/// The first request for each object finds the driver unavailable.
pub const BUSY: &str = "busy";
/// A snapshot class's parameter: after how many seconds a snapshot is ready.
pub const READY_AFTER: &str = "readyAfter";

const PUBLISH: &str = r#"set -e; mkdir -p "$2"; mountpoint -q "$2" && exit; mount --bind "$1" "$2"
[ "$3" = false ] || mount -o remount,bind,ro "$2""#;
const UNPUBLISH: &str = r#"while umount "$1" 2>/dev/null; do :; done; [ ! -d "$1" ] || rmdir "$1""#;

type Answer<T> = Result<T, Box<Status>>;

/// A driver whose volumes are directories and whose snapshots are copies.
#[derive(Debug)]
pub struct Driver {
    directories: Directories,
    /// The first process of the node, in whose namespaces mounts have to be made.
    node: Process,
    asked: Mutex<HashSet<String>>,
    registered: AtomicBool,
}

impl Driver {
    pub fn new(directories: Directories, node: Process) -> Self {
        Self { directories, node, asked: Mutex::default(), registered: AtomicBool::new(false) }
    }

    pub fn directories(&self) -> &Directories {
        &self.directories
    }

    /// Whether the kubelet has said so.
    pub fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    pub fn create_volume(&self, request: CreateVolumeRequest) -> Answer<CreateVolumeResponse> {
        self.misbehave(&request.name, &request.parameters)?;
        let size = request.capacity_range.map_or(0, |range| range.required_bytes);
        let source = request.content_source;
        let snapshot = source.as_ref().and_then(|source| source.snapshot.as_ref()).map(|source| source.id.clone());
        if source.is_some() && snapshot.is_none() {
            return Err(Box::new(Status::invalid_argument("volumes are made from snapshots, not from other volumes")));
        }
        if let Some(id) = &snapshot {
            self.check_source(id, size)?;
        }
        let facts = self.directories.create_volume(&request.name, size, snapshot.as_deref())?;
        let volume = Volume { capacity_bytes: facts.size, id: request.name, content_source: source };
        Ok(CreateVolumeResponse { volume: Some(volume) })
    }

    fn check_source(&self, snapshot: &str, size: i64) -> Answer<()> {
        let missing = || Box::new(Status::not_found(format!("there is no snapshot {snapshot}")));
        let facts = self.directories.snapshot_facts(snapshot)?.ok_or_else(missing)?;
        if !facts.is_ready() {
            return Err(Box::new(Status::unavailable(format!("snapshot {snapshot} is not ready"))));
        }
        if size < facts.size {
            let text = format!("{size} bytes are less than the {} of snapshot {snapshot}", facts.size);
            return Err(Box::new(Status::out_of_range(text)));
        }
        Ok(())
    }

    pub fn delete_volume(&self, id: &str) -> Answer<()> {
        self.directories.delete_volume(id)
    }

    fn create_snapshot(&self, request: &CreateSnapshotRequest) -> Answer<SnapshotEntry> {
        self.misbehave(&request.name, &request.parameters)?;
        let wrong = |text: &String| {
            Box::new(Status::invalid_argument(format!("parameter {READY_AFTER} is {text:?}, no number of seconds")))
        };
        let after = request.parameters.get(READY_AFTER);
        let after = after.map(|text| text.parse().map_err(|_| wrong(text))).transpose()?.unwrap_or(0);
        let after = Duration::from_secs(after);
        let facts = self.directories.create_snapshot(&request.name, &request.source_volume_id, after)?;
        Ok(entry(request.name.clone(), &facts))
    }

    fn list_snapshots(&self, request: &ListSnapshotsRequest) -> Answer<ListSnapshotsResponse> {
        let asks = |wanted: &str, own: &str| wanted.is_empty() || wanted == own;
        let wanted = |(id, facts): &(String, SnapshotFacts)| {
            asks(&request.snapshot_id, id) && asks(&request.source_volume_id, &facts.volume)
        };
        let found = self.directories.snapshots()?.into_iter().filter(wanted);
        Ok(ListSnapshotsResponse { entries: found.map(|(id, facts)| entry(id, &facts)).collect() })
    }

    fn misbehave(&self, name: &str, parameters: &HashMap<String, String>) -> Answer<()> {
        match parameters.get(FAULT).map(String::as_str) {
            None => Ok(()),
            Some(REFUSE) => Err(Box::new(Status::invalid_argument("this class is made to be refused"))),
            Some(BUSY) => {
                let first = self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
                if first {
                    Err(Box::new(Status::unavailable("this class is made to be busy at first")))
                } else {
                    Ok(())
                }
            }
            Some(other) => Err(Box::new(Status::invalid_argument(format!("parameter {FAULT} is {other:?}")))),
        }
    }

    fn publish(&self, request: &NodePublishVolumeRequest) -> Answer<Empty> {
        let directory = self.directories.volume(&request.volume_id)?;
        if !directory.is_dir() {
            return Err(Box::new(Status::not_found(format!("there is no volume {}", request.volume_id))));
        }
        let directory = directory.display().to_string();
        self.on_the_node(PUBLISH, &[&directory, &request.target_path, &request.readonly.to_string()])
    }

    fn unpublish(&self, request: &NodeUnpublishVolumeRequest) -> Answer<Empty> {
        self.on_the_node(UNPUBLISH, &[&request.target_path])
    }

    /// In its namespace of processes too: what is mounted there is told by its own `/proc`.
    fn on_the_node(&self, script: &str, arguments: &[&str]) -> Answer<Empty> {
        let mut enter = Command::new("nsenter");
        enter
            .arg("--target")
            .arg(self.node.id().to_string())
            .args(["--mount", "--pid", "--", "bash", "-c", script, "driver"]);
        let output = enter.args(arguments).output().map_err(|error| Box::new(Status::internal(error.to_string())))?;
        if output.status.success() {
            return Ok(Empty {});
        }
        Err(Box::new(Status::internal(String::from_utf8_lossy(&output.stderr).into_owned())))
    }

    /// What the kubelet and the snapshot sidecar call.
    pub fn services(self: &Arc<Self>) -> Services {
        let identity = PluginInfo { name: DRIVER.into(), vendor_version: env!("CARGO_PKG_VERSION").into() };
        let services = Services::default()
            .on("/csi.v1.Identity/GetPluginInfo", constant(identity))
            .on("/csi.v1.Identity/GetPluginCapabilities", constant(Capabilities::of(&[CONTROLLER_SERVICE])))
            .on("/csi.v1.Identity/Probe", constant(Empty {}))
            .on("/csi.v1.Node/NodeGetCapabilities", constant(Capabilities::of(&[])))
            .on("/csi.v1.Node/NodeGetInfo", constant(NodeInfo { node_id: NODE.into() }))
            .on("/csi.v1.Node/NodePublishVolume", self.working(|driver, request| driver.publish(&request)))
            .on("/csi.v1.Node/NodeUnpublishVolume", self.working(|driver, request| driver.unpublish(&request)));
        self.controller(services)
    }

    fn controller(self: &Arc<Self>, services: Services) -> Services {
        let able = Capabilities::of(&[CREATE_DELETE_VOLUME, CREATE_DELETE_SNAPSHOT, LIST_SNAPSHOTS]);
        services
            .on("/csi.v1.Controller/ControllerGetCapabilities", constant(able))
            .on("/csi.v1.Controller/CreateVolume", self.working(Self::create_volume))
            .on(
                "/csi.v1.Controller/DeleteVolume",
                self.working(|driver, request: DeleteRequest| driver.delete_volume(&request.id).map(|()| Empty {})),
            )
            .on("/csi.v1.Controller/CreateSnapshot", self.working(|driver, request| driver.create_snapshot(&request)))
            .on(
                "/csi.v1.Controller/DeleteSnapshot",
                self.working(|driver, request: DeleteRequest| {
                    driver.directories.delete_snapshot(&request.id).map(|()| Empty {})
                }),
            )
            .on("/csi.v1.Controller/ListSnapshots", self.working(|driver, request| driver.list_snapshots(&request)))
    }

    /// What the kubelet asks whoever appears in its directory of plugins.
    pub fn registrar(self: &Arc<Self>, endpoint: &Path) -> Services {
        let this = Registration {
            kind: "CSIPlugin".into(),
            name: DRIVER.into(),
            endpoint: endpoint.display().to_string(),
            supported_versions: vec!["1.0.0".into()],
        };
        let driver = Arc::clone(self);
        Services::default().on("/pluginregistration.Registration/GetInfo", constant(this)).on(
            "/pluginregistration.Registration/NotifyRegistrationStatus",
            move |status: RegistrationStatus| {
                driver.registered.store(status.registered, Ordering::Release);
                async { Ok::<_, Status>(Empty {}) }
            },
        )
    }

    /// A method that copies, mounts or deletes, away from the threads that answer.
    fn working<Ask, Reply>(
        self: &Arc<Self>,
        work: fn(&Self, Ask) -> Answer<Reply>,
    ) -> impl Fn(Ask) -> BoxFuture<'static, Result<Reply, Status>> + Clone + Send + Sync + 'static + use<Ask, Reply>
    where
        Ask: Send + 'static,
        Reply: Send + 'static,
    {
        let driver = Arc::clone(self);
        move |request| {
            let driver = Arc::clone(&driver);
            Box::pin(async move {
                let done = tokio::task::spawn_blocking(move || work(&driver, request)).await;
                done.map_err(|error| Status::internal(error.to_string()))?.map_err(|status| *status)
            })
        }
    }
}

/// A method that asks for nothing and always gets the same.
fn constant<Reply>(reply: Reply) -> impl Fn(Empty) -> Ready<Result<Reply, Status>> + Clone + Send + Sync + 'static
where
    Reply: Clone + Send + Sync + 'static,
{
    move |_| ready(Ok(reply.clone()))
}

fn entry(id: String, facts: &SnapshotFacts) -> SnapshotEntry {
    let snapshot = Snapshot {
        size_bytes: facts.size,
        id,
        source_volume_id: facts.volume.clone(),
        creation_time: Some(facts.created.into()),
        ready_to_use: facts.is_ready(),
    };
    SnapshotEntry { snapshot: Some(snapshot) }
}

/// A volume's source, as a request has it.
pub fn from_snapshot(id: String) -> ContentSource {
    ContentSource { snapshot: Some(super::wire::SourceId { id }), volume: None }
}

/// The files of a volume.
pub fn volume_directory(driver: &Driver, id: &str) -> Option<PathBuf> {
    driver.directories.volume(id).ok().filter(|directory| directory.is_dir())
}
