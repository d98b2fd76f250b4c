//! The CSI driver: its Identity, Controller and Node services, and its registration with the kubelet.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, Ready, ready};
use plimsoll_grpc_server::Router;
use tonic::Status;

use super::DRIVER;
use super::directories::{Directories, SnapshotRecord};
use super::wire::{
    CONTROLLER_SERVICE, CREATE_DELETE_SNAPSHOT, CREATE_DELETE_VOLUME, Capabilities, ContentSource,
    CreateSnapshotRequest, CreateVolumeRequest, CreateVolumeResponse, DeleteRequest, Empty, LIST_SNAPSHOTS,
    ListSnapshotsRequest, ListSnapshotsResponse, NodeInfo, NodePublishVolumeRequest, NodeUnpublishVolumeRequest,
    PluginInfo, Registration, RegistrationStatus, Snapshot, SnapshotEntry, Volume,
};
use crate::cluster::NODE;
use crate::process::Process;

/// A parameter of a class that injects a fault: [`FAULT_REJECT`] or [`FAULT_BUSY`].
pub const FAULT: &str = "fault";
/// Every request fails with `InvalidArgument`.
pub const FAULT_REJECT: &str = "refuse";
/// The first request for each object fails with `Unavailable`.
pub const FAULT_BUSY: &str = "busy";
/// A parameter of a snapshot class: the seconds until a snapshot is ready.
pub const READY_AFTER: &str = "readyAfter";

const PUBLISH: &str = r#"set -e; mkdir -p "$2"; mountpoint -q "$2" && exit; mount --bind "$1" "$2"
[ "$3" = false ] || mount -o remount,bind,ro "$2""#;
const UNPUBLISH: &str = r#"while umount "$1" 2>/dev/null; do :; done; [ ! -d "$1" ] || rmdir "$1""#;

type DriverResult<T> = Result<T, Box<Status>>;

/// A driver whose volumes are directories and whose snapshots are copies.
#[derive(Debug)]
pub struct Driver {
    directories: Directories,
    /// The first process of the node, in whose namespaces volumes are mounted.
    node: Process,
    seen_requests: Mutex<HashSet<String>>,
    registered: AtomicBool,
}

impl Driver {
    pub fn new(directories: Directories, node: Process) -> Self {
        Self { directories, node, seen_requests: Mutex::default(), registered: AtomicBool::new(false) }
    }

    pub fn directories(&self) -> &Directories {
        &self.directories
    }

    /// Whether the kubelet has registered the driver.
    pub fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    pub fn create_volume(&self, request: CreateVolumeRequest) -> DriverResult<CreateVolumeResponse> {
        self.inject_fault(&request.name, &request.parameters)?;
        let size = request.capacity_range.map_or(0, |range| range.required_bytes);
        let source = request.content_source;
        let snapshot = source.as_ref().and_then(|source| source.snapshot.as_ref()).map(|source| source.id.clone());
        if source.is_some() && snapshot.is_none() {
            return Err(Box::new(Status::invalid_argument(
                "volumes can be created from snapshots, not from other volumes",
            )));
        }
        if let Some(id) = &snapshot {
            self.check_source(id, size)?;
        }
        let record = self.directories.create_volume(&request.name, size, snapshot.as_deref())?;
        let volume = Volume { capacity_bytes: record.size, id: request.name, content_source: source };
        Ok(CreateVolumeResponse { volume: Some(volume) })
    }

    fn check_source(&self, snapshot: &str, size: i64) -> DriverResult<()> {
        let missing = || Box::new(Status::not_found(format!("there is no snapshot {snapshot}")));
        let record = self.directories.snapshot_record(snapshot)?.ok_or_else(missing)?;
        if !record.is_ready() {
            return Err(Box::new(Status::unavailable(format!("snapshot {snapshot} is not ready"))));
        }
        if size < record.size {
            let text = format!("{size} bytes are less than the {} of snapshot {snapshot}", record.size);
            return Err(Box::new(Status::out_of_range(text)));
        }
        Ok(())
    }

    pub fn delete_volume(&self, id: &str) -> DriverResult<()> {
        self.directories.delete_volume(id)
    }

    fn create_snapshot(&self, request: &CreateSnapshotRequest) -> DriverResult<SnapshotEntry> {
        self.inject_fault(&request.name, &request.parameters)?;
        let invalid = |text: &String| {
            Box::new(Status::invalid_argument(format!("parameter {READY_AFTER} is {text:?}, no number of seconds")))
        };
        let after = request.parameters.get(READY_AFTER);
        let after = after.map(|text| text.parse().map_err(|_| invalid(text))).transpose()?.unwrap_or(0);
        let after = Duration::from_secs(after);
        let record = self.directories.create_snapshot(&request.name, &request.source_volume_id, after)?;
        Ok(entry(request.name.clone(), &record))
    }

    fn list_snapshots(&self, request: &ListSnapshotsRequest) -> DriverResult<ListSnapshotsResponse> {
        let asks = |wanted: &str, own: &str| wanted.is_empty() || wanted == own;
        let wanted = |(id, record): &(String, SnapshotRecord)| {
            asks(&request.snapshot_id, id) && asks(&request.source_volume_id, &record.volume)
        };
        let found = self.directories.snapshots()?.into_iter().filter(wanted);
        Ok(ListSnapshotsResponse { entries: found.map(|(id, record)| entry(id, &record)).collect() })
    }

    fn inject_fault(&self, name: &str, parameters: &HashMap<String, String>) -> DriverResult<()> {
        match parameters.get(FAULT).map(String::as_str) {
            None => Ok(()),
            Some(FAULT_REJECT) => Err(Box::new(Status::invalid_argument("this class is made to be refused"))),
            Some(FAULT_BUSY) => {
                let first = self.seen_requests.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
                if first {
                    Err(Box::new(Status::unavailable("this class is made to be busy at first")))
                } else {
                    Ok(())
                }
            }
            Some(other) => Err(Box::new(Status::invalid_argument(format!("parameter {FAULT} is {other:?}")))),
        }
    }

    fn publish(&self, request: &NodePublishVolumeRequest) -> DriverResult<Empty> {
        let directory = self.directories.volume(&request.volume_id)?;
        if !directory.is_dir() {
            return Err(Box::new(Status::not_found(format!("there is no volume {}", request.volume_id))));
        }
        let directory = directory.display().to_string();
        self.run_on_node(PUBLISH, &[&directory, &request.target_path, &request.readonly.to_string()])
    }

    fn unpublish(&self, request: &NodeUnpublishVolumeRequest) -> DriverResult<Empty> {
        self.run_on_node(UNPUBLISH, &[&request.target_path])
    }

    /// Runs in the PID namespace of the node too: its mounts are listed in its own `/proc`.
    fn run_on_node(&self, script: &str, arguments: &[&str]) -> DriverResult<Empty> {
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

    /// The services that the kubelet and the snapshot sidecar call.
    pub fn services(self: &Arc<Self>) -> Router {
        let identity = PluginInfo { name: DRIVER.into(), vendor_version: env!("CARGO_PKG_VERSION").into() };
        let services = Router::default()
            .on("/csi.v1.Identity/GetPluginInfo", constant_method(identity))
            .on("/csi.v1.Identity/GetPluginCapabilities", constant_method(Capabilities::of(&[CONTROLLER_SERVICE])))
            .on("/csi.v1.Identity/Probe", constant_method(Empty {}))
            .on("/csi.v1.Node/NodeGetCapabilities", constant_method(Capabilities::of(&[])))
            .on("/csi.v1.Node/NodeGetInfo", constant_method(NodeInfo { node_id: NODE.into() }))
            .on("/csi.v1.Node/NodePublishVolume", self.blocking_method(|driver, request| driver.publish(&request)))
            .on("/csi.v1.Node/NodeUnpublishVolume", self.blocking_method(|driver, request| driver.unpublish(&request)));
        self.controller(services)
    }

    fn controller(self: &Arc<Self>, services: Router) -> Router {
        let capabilities = Capabilities::of(&[CREATE_DELETE_VOLUME, CREATE_DELETE_SNAPSHOT, LIST_SNAPSHOTS]);
        services
            .on("/csi.v1.Controller/ControllerGetCapabilities", constant_method(capabilities))
            .on("/csi.v1.Controller/CreateVolume", self.blocking_method(Self::create_volume))
            .on(
                "/csi.v1.Controller/DeleteVolume",
                self.blocking_method(|driver, request: DeleteRequest| {
                    driver.delete_volume(&request.id).map(|()| Empty {})
                }),
            )
            .on(
                "/csi.v1.Controller/CreateSnapshot",
                self.blocking_method(|driver, request| driver.create_snapshot(&request)),
            )
            .on(
                "/csi.v1.Controller/DeleteSnapshot",
                self.blocking_method(|driver, request: DeleteRequest| {
                    driver.directories.delete_snapshot(&request.id).map(|()| Empty {})
                }),
            )
            .on(
                "/csi.v1.Controller/ListSnapshots",
                self.blocking_method(|driver, request| driver.list_snapshots(&request)),
            )
    }

    /// The plugin registration service of the kubelet.
    pub fn registrar(self: &Arc<Self>, endpoint: &Path) -> Router {
        let this = Registration {
            kind: "CSIPlugin".into(),
            name: DRIVER.into(),
            endpoint: endpoint.display().to_string(),
            supported_versions: vec!["1.0.0".into()],
        };
        let driver = Arc::clone(self);
        Router::default().on("/pluginregistration.Registration/GetInfo", constant_method(this)).on(
            "/pluginregistration.Registration/NotifyRegistrationStatus",
            move |status: RegistrationStatus| {
                driver.registered.store(status.registered, Ordering::Release);
                async { Ok::<_, Status>(Empty {}) }
            },
        )
    }

    /// A method that blocks, run on a thread for blocking work.
    fn blocking_method<Req, Reply>(
        self: &Arc<Self>,
        work: fn(&Self, Req) -> DriverResult<Reply>,
    ) -> impl Fn(Req) -> BoxFuture<'static, Result<Reply, Status>> + Clone + Send + Sync + 'static + use<Req, Reply>
    where
        Req: Send + 'static,
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

/// A method without a request that always returns the same response.
fn constant_method<Reply>(
    reply: Reply,
) -> impl Fn(Empty) -> Ready<Result<Reply, Status>> + Clone + Send + Sync + 'static
where
    Reply: Clone + Send + Sync + 'static,
{
    move |_| ready(Ok(reply.clone()))
}

fn entry(id: String, record: &SnapshotRecord) -> SnapshotEntry {
    let snapshot = Snapshot {
        size_bytes: record.size,
        id,
        source_volume_id: record.volume.clone(),
        creation_time: Some(record.created.into()),
        ready_to_use: record.is_ready(),
    };
    SnapshotEntry { snapshot: Some(snapshot) }
}

/// The content source of a volume in a request.
pub fn from_snapshot(id: String) -> ContentSource {
    ContentSource { snapshot: Some(super::wire::SourceId { id }), volume: None }
}

/// The files of a volume.
pub fn volume_directory(driver: &Driver, id: &str) -> Option<PathBuf> {
    driver.directories.volume(id).ok().filter(|directory| directory.is_dir())
}
