//! Volume transfers: one view of six kinds.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_api::labels;
use plimsoll_progress::{Counts, Node, Percent, Snapshot, State, Total, Unit};

use crate::cluster_state::ClusterState;
use crate::evidence::sanitize;
use crate::kind::Kind;
use crate::object::Object;
use crate::observed_task::{ObservedTask, TaskStatus};

/// A PodVolumeBackup, PodVolumeRestore, DataUpload or DataDownload, or a plugin's work on a volume.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'w> {
    /// The object.
    pub object: &'w Object,
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferEnd {
    /// Succeeded.
    Done,
    /// Failed.
    Failed,
    /// Cancelled on request.
    Cancelled,
}

impl<'w> Transfer<'w> {
    /// All transfers of a Backup or Restore, with plugins' work on its volumes.
    pub fn of(parent: &Object, cluster: &'w ClusterState) -> Vec<Self> {
        let (kinds, label) = match parent.kind() {
            Kind::Backup => ([Kind::PodVolumeBackup, Kind::DataUpload, Kind::VolumePluginBackup], labels::BACKUP_NAME),
            Kind::Restore => {
                ([Kind::PodVolumeRestore, Kind::DataDownload, Kind::VolumePluginRestore], labels::RESTORE_NAME)
            }
            _ => return Vec::new(),
        };
        let value = labels::valid_name(parent.name());
        let mine = |object: &&Object| match object.label(label) {
            "" => Self::names(object, parent),
            named => named == value,
        };
        let all = kinds.into_iter().flat_map(|kind| cluster.all(kind));
        let all = all.filter(|object| object.namespace() == parent.namespace()).filter(mine);
        all.map(|object| Self { object }).collect()
    }

    /// A plugin that writes a record of its own need not know our labels: it names the backup in its spec.
    fn names(object: &Object, parent: &Object) -> bool {
        object.kind() == Kind::VolumePluginBackup && object.text("/spec/backup") == parent.name()
    }

    /// The kind and name of its Backup or Restore.
    pub fn parent(&self) -> Option<(Kind, &'w str)> {
        let (kind, label) = match self.object.kind() {
            Kind::PodVolumeBackup | Kind::DataUpload | Kind::VolumePluginBackup => (Kind::Backup, labels::BACKUP_NAME),
            _ => (Kind::Restore, labels::RESTORE_NAME),
        };
        let owner = self.object.list("/metadata/ownerReferences").first();
        let owner = owner.and_then(|owner| owner["name"].as_str());
        let label = Some(self.object.label(label)).filter(|name| !name.is_empty());
        let named = || self.object.some_text("/spec/backup").filter(|_| self.object.kind() == Kind::VolumePluginBackup);
        owner.or(label).or_else(named).map(|name| (kind, name))
    }

    /// Whether it has ended.
    pub fn is_ended(&self) -> bool {
        self.end().is_some()
    }

    /// How it ended, if it has.
    pub(crate) fn end(self) -> Option<TransferEnd> {
        let (phase, plugins) = (self.object.phase(), self.object.kind().is_plugin_volume());
        // Plugins choose their own words. Where those say nothing of an end, its time does.
        let is = |word: &str| if plugins { word.eq_ignore_ascii_case(phase) } else { word == phase };
        let stamped = plugins && self.object.some_text("/status/completionTimestamp").is_some();
        if is("Failed") || (stamped && is("Error")) {
            Some(TransferEnd::Failed)
        } else if is("Canceled") || (plugins && is("Cancelled")) {
            Some(TransferEnd::Cancelled)
        } else {
            (is("Completed") || stamped).then_some(TransferEnd::Done)
        }
    }

    /// Whether it reports progress. A plugin may not.
    pub(crate) fn reports_progress(self) -> bool {
        let (done, total) = self.bytes();
        !self.object.kind().is_plugin_volume() || done > 0 || total.value().is_some()
    }

    /// The pod whose volume it is, as namespace and name.
    pub fn pod(&self) -> Option<(&'w str, &'w str)> {
        let (namespace, name) = (self.object.text("/spec/pod/namespace"), self.object.some_text("/spec/pod/name")?);
        Some((namespace, name))
    }

    /// The namespace that the volume is in, or will be.
    pub fn namespace(&self) -> Option<&'w str> {
        let place = match self.object.kind() {
            Kind::DataUpload => "/spec/sourceNamespace",
            Kind::DataDownload => "/spec/targetVolume/namespace",
            _ => "/spec/pod/namespace",
        };
        self.object.some_text(place)
    }

    /// The namespace under which its repository is kept: the one that the data came from, wherever it goes.
    pub fn repository(&self) -> Option<&'w str> {
        self.object.some_text("/spec/sourceNamespace").or_else(|| self.namespace())
    }

    /// The node on which it must be done or is done.
    pub fn node(&self) -> Option<&'w str> {
        ["/spec/node", "/status/node", "/status/acceptedByNode"].iter().find_map(|place| self.object.some_text(place))
    }

    /// A label: the pod and volume, or the claim.
    pub fn label(&self) -> String {
        if let Some((namespace, pod)) = self.pod() {
            return format!("{namespace}/{pod}: {}", self.object.text("/spec/volume"));
        }
        let of = |namespace: &str, claim: &str| {
            let (namespace, claim) = (self.object.text(namespace), self.object.text(claim));
            (!claim.is_empty()).then(|| format!("{namespace}/{claim}"))
        };
        let plugins = ["/spec/volume", "/status/volumeID"];
        let plugins = || plugins.iter().find_map(|place| self.object.some_text(place)).map(sanitize);
        of("/spec/sourceNamespace", "/spec/sourcePVC")
            .or_else(|| of("/spec/targetVolume/namespace", "/spec/targetVolume/pvc"))
            .or_else(plugins)
            .unwrap_or_else(|| self.object.name().to_owned())
    }

    /// Bytes done, and the total.
    pub fn bytes(&self) -> (u64, Total) {
        let done = self.object.number("/status/progress/bytesDone").unwrap_or(0);
        let total = self.object.number("/status/progress/totalBytes").filter(|total| *total > 0);
        let known = total.or_else(|| self.object.number("/spec/snapshotSize").filter(|size| *size > 0));
        let total = match known {
            Some(total) if self.end() == Some(TransferEnd::Done) => Total::Final(total.max(done)),
            // Velero corrects it while the uploader still scans the volume.
            Some(total) => Total::Growing(total.max(done)),
            None => Total::Unknown,
        };
        (done, total)
    }

    /// What its object shows, as a tree.
    pub(crate) fn written_tree(self) -> Snapshot {
        let (done, total) = self.bytes();
        let state = match self.end() {
            None => State::Running,
            Some(TransferEnd::Done) => State::Done,
            Some(TransferEnd::Failed) => State::Failed,
            Some(TransferEnd::Cancelled) => State::Cancelled,
        };
        let root = Node {
            path: Arc::from(""),
            name: Arc::from(self.object.name()),
            state,
            meters: vec![Counts { done, total, ..Counts::zero(Unit::Bytes) }.covered()],
            percent: self.percent(),
            ..Node::default()
        };
        let token = self.object.some_text("/status/plimsoll/token").and_then(|token| token.parse().ok());
        Snapshot { operation: Arc::clone(&root.name), nodes: vec![root], stall: None, token, whole: None }
    }

    /// The percentage, as reported by its server or computed from its bytes.
    pub fn percent(&self) -> Option<Percent> {
        if self.end() == Some(TransferEnd::Done) {
            return Some(Percent::COMPLETE);
        }
        let said = self.object.some_text("/status/plimsoll/percent").and_then(|text| text.parse().ok());
        let counted = || {
            let (done, total) = self.bytes();
            total.value().map(|known| Percent::of(done, known).approximately(!total.is_final()))
        };
        said.or_else(counted)
    }

    /// When it started.
    pub fn began(&self) -> Option<Timestamp> {
        self.object.time("/status/startTimestamp").or_else(|| self.object.created())
    }

    /// The time of its last progress report. A recorded stall is not a report.
    pub fn last_report(&self) -> Option<Timestamp> {
        self.object.time("/status/plimsoll/stalled/since").or_else(|| self.object.last_write())
    }

    /// The time since its last progress report.
    pub fn silence(&self, cluster: &ClusterState) -> Duration {
        self.last_report().map(|then| cluster.age(then)).unwrap_or_default()
    }

    /// Another transfer that runs on the same node: by default one runs at a time.
    pub fn ahead(&self, cluster: &'w ClusterState) -> Option<&'w Object> {
        if self.object.kind().is_plugin_volume() {
            return None;
        }
        let node = self.node();
        let kinds = [Kind::PodVolumeBackup, Kind::PodVolumeRestore, Kind::DataUpload, Kind::DataDownload];
        let others = kinds.into_iter().flat_map(|kind| cluster.all(kind)).map(|object| Transfer { object });
        let busy = |other: &Transfer<'_>| {
            matches!(other.object.phase(), "Accepted" | "Prepared" | "InProgress")
                && other.object.name() != self.object.name()
                && (node.is_none() || other.node() == node)
        };
        others.into_iter().find(busy).map(|other| other.object)
    }

    /// The task of this transfer.
    pub fn observed_task(&self, cluster: &ClusterState) -> ObservedTask {
        let (done, total) = self.bytes();
        let object = self.object;
        let mut observed = ObservedTask::new(self.label(), self.status(cluster))
            .with_times(self.began(), self.last_report())
            .with_end(object.time("/status/completionTimestamp"));
        if self.reports_progress() {
            observed = observed.with_meter(Unit::Bytes, done, total);
        }
        if let Some(files) = object.number("/status/plimsoll/filesDone") {
            let all = object.number("/status/plimsoll/totalFiles");
            let all = all.map_or(Total::Unknown, |all| Total::Final(all.max(files)));
            observed = observed.with_meter(Unit::Files, files, all);
        }
        observed.item = object.some_text("/status/plimsoll/doing").filter(|_| !self.is_ended()).map(str::to_owned);
        observed.hint = object.some_text("/status/message").map(sanitize);
        observed
    }

    fn status(self, cluster: &ClusterState) -> TaskStatus {
        let message = || sanitize(self.object.text("/status/message"));
        let on = self.node().map(|node| format!(" on node {node}")).unwrap_or_default();
        match self.end() {
            Some(TransferEnd::Done) => return TaskStatus::Done,
            Some(TransferEnd::Failed) => return TaskStatus::Failed(message()),
            Some(TransferEnd::Cancelled) => return TaskStatus::Cancelled(message()),
            None if self.object.kind().is_plugin_volume() => return self.plugin_status(),
            None => {}
        }
        match self.object.phase() {
            "InProgress" => TaskStatus::Running,
            "Canceling" => TaskStatus::Waiting(format!("the mover{on} to stop")),
            "Prepared" | "New" if self.ahead(cluster).is_some() => {
                let ahead = self.ahead(cluster).map(|other| other.reference().to_string()).unwrap_or_default();
                TaskStatus::Queued(format!("its turn{on}, behind {ahead}"))
            }
            "Accepted" => TaskStatus::Waiting(format!("the mover's pod{on} to start")),
            "Prepared" => TaskStatus::Waiting(format!("the node agent{on} to begin")),
            _ if self.object.kind() == Kind::PodVolumeRestore => match self.pod() {
                Some((namespace, pod)) => TaskStatus::Waiting(format!("pod {namespace}/{pod} to wait for its volume")),
                None => TaskStatus::Waiting("its pod".to_owned()),
            },
            _ => TaskStatus::Waiting(format!("the node agent{on} to accept it")),
        }
    }

    /// A plugin without progress reports is not stalled for that alone.
    fn plugin_status(self) -> TaskStatus {
        match self.object.phase() {
            _ if self.reports_progress() => TaskStatus::Running,
            "New" => TaskStatus::Queued("the plugin to report progress".to_owned()),
            _ => TaskStatus::Quiet,
        }
    }
}
