//! The data of one volume on its way: kinds that say the same.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_api::labels;
use plimsoll_progress::{Percent, Total, Unit};

use crate::evidence::clean;
use crate::kind::Kind;
use crate::object::Object;
use crate::sketch::{Sketch, Standing};
use crate::world::World;

/// A PodVolumeBackup, PodVolumeRestore, DataUpload or DataDownload; or what a plugin does with a volume.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'w> {
    /// The object.
    pub object: &'w Object,
}

/// How the work on a volume ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Well.
    Done,
    /// Badly.
    Failed,
    /// Because somebody asked.
    Cancelled,
}

impl<'w> Transfer<'w> {
    /// All transfers of a Backup or Restore, and what plugins do with its volumes.
    pub fn of(parent: &Object, world: &'w World) -> Vec<Self> {
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
        let all = kinds.into_iter().flat_map(|kind| world.all(kind));
        let all = all.filter(|object| object.namespace() == parent.namespace()).filter(mine);
        all.map(|object| Self { object }).collect()
    }

    /// A plugin that writes a record of its own need not know our labels: it names the backup in its spec.
    fn names(object: &Object, parent: &Object) -> bool {
        object.kind() == Kind::VolumePluginBackup && object.text("/spec/backup") == parent.name()
    }

    /// The kind and name of what it belongs to.
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

    /// Whether it will not change any more.
    pub fn is_ended(&self) -> bool {
        self.end().is_some()
    }

    /// How it ended, if it has.
    pub(crate) fn end(self) -> Option<End> {
        let (phase, plugins) = (self.object.phase(), self.object.kind().is_plugins());
        // Plugins choose their own words. Where those say nothing of an end, its time does.
        let is = |word: &str| if plugins { word.eq_ignore_ascii_case(phase) } else { word == phase };
        let stamped = plugins && self.object.some_text("/status/completionTimestamp").is_some();
        if is("Failed") || (stamped && is("Error")) {
            Some(End::Failed)
        } else if is("Canceled") || (plugins && is("Cancelled")) {
            Some(End::Cancelled)
        } else {
            (is("Completed") || stamped).then_some(End::Done)
        }
    }

    /// Whether it says how far it is. What plugins do may give no signal by nature.
    pub(crate) fn counts(self) -> bool {
        let (done, total) = self.bytes();
        !self.object.kind().is_plugins() || done > 0 || total.value().is_some()
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

    /// What to call it: the volume it is about.
    pub fn label(&self) -> String {
        if let Some((namespace, pod)) = self.pod() {
            return format!("{namespace}/{pod}: {}", self.object.text("/spec/volume"));
        }
        let of = |namespace: &str, claim: &str| {
            let (namespace, claim) = (self.object.text(namespace), self.object.text(claim));
            (!claim.is_empty()).then(|| format!("{namespace}/{claim}"))
        };
        let plugins = ["/spec/volume", "/status/volumeID"];
        let plugins = || plugins.iter().find_map(|place| self.object.some_text(place)).map(clean);
        of("/spec/sourceNamespace", "/spec/sourcePVC")
            .or_else(|| of("/spec/targetVolume/namespace", "/spec/targetVolume/pvc"))
            .or_else(plugins)
            .unwrap_or_else(|| self.object.name().to_owned())
    }

    /// Bytes done, and how many there are.
    pub fn bytes(&self) -> (u64, Total) {
        let done = self.object.number("/status/progress/bytesDone").unwrap_or(0);
        let total = self.object.number("/status/progress/totalBytes").filter(|total| *total > 0);
        let known = total.or_else(|| self.object.number("/spec/snapshotSize").filter(|size| *size > 0));
        let total = match known {
            Some(total) if self.end() == Some(End::Done) => Total::Final(total),
            // Velero corrects it while the uploader is still looking around.
            Some(total) => Total::Growing(total.max(done)),
            None => Total::Unknown,
        };
        (done, total)
    }

    /// How far it is, as it is shown everywhere: by its server's own word, or from its bytes.
    pub fn percent(&self) -> Option<Percent> {
        if self.end() == Some(End::Done) {
            return Some(Percent::COMPLETE);
        }
        let said = self.object.some_text("/status/plimsoll/percent").and_then(|text| text.parse().ok());
        let counted = || {
            let (done, total) = self.bytes();
            total.value().map(|known| Percent::of(done, known).approximately(!total.is_final()))
        };
        said.or_else(counted)
    }

    /// When work on it began.
    pub fn began(&self) -> Option<Timestamp> {
        self.object.time("/status/startTimestamp").or_else(|| self.object.created())
    }

    /// When anything was last heard of it. That it stands still is no news of it, though our server writes that down.
    pub fn last_word(&self) -> Option<Timestamp> {
        self.object.time("/status/plimsoll/stalled/since").or_else(|| self.object.last_write())
    }

    /// How long it has been since anything was heard of it.
    pub fn silence(&self, world: &World) -> Duration {
        self.last_word().map(|then| world.age(then)).unwrap_or_default()
    }

    /// Others of its kind that are at work on the same node: by default there is room for one.
    pub fn ahead(&self, world: &'w World) -> Option<&'w Object> {
        if self.object.kind().is_plugins() {
            return None;
        }
        let node = self.node();
        let kinds = [Kind::PodVolumeBackup, Kind::PodVolumeRestore, Kind::DataUpload, Kind::DataDownload];
        let others = kinds.into_iter().flat_map(|kind| world.all(kind)).map(|object| Transfer { object });
        let busy = |other: &Transfer<'_>| {
            matches!(other.object.phase(), "Accepted" | "Prepared" | "InProgress")
                && other.object.name() != self.object.name()
                && (node.is_none() || other.node() == node)
        };
        others.into_iter().find(busy).map(|other| other.object)
    }

    /// How it looks.
    pub fn sketch(&self, world: &World) -> Sketch {
        let (done, total) = self.bytes();
        let object = self.object;
        let mut sketch = Sketch::new(self.label(), self.standing(world))
            .at(self.began(), self.last_word())
            .until(object.time("/status/completionTimestamp"));
        if self.counts() {
            sketch = sketch.counting(Unit::Bytes, done, total);
        }
        if let Some(files) = object.number("/status/plimsoll/filesDone") {
            let all = object.number("/status/plimsoll/totalFiles").map_or(Total::Unknown, Total::Final);
            sketch = sketch.counting(Unit::Files, files, all);
        }
        sketch.item = object.some_text("/status/plimsoll/doing").filter(|_| !self.is_ended()).map(str::to_owned);
        sketch.hint = object.some_text("/status/message").map(clean);
        sketch
    }

    fn standing(self, world: &World) -> Standing {
        let message = || clean(self.object.text("/status/message"));
        let on = self.node().map(|node| format!(" on node {node}")).unwrap_or_default();
        match self.end() {
            Some(End::Done) => return Standing::Done,
            Some(End::Failed) => return Standing::Failed(message()),
            Some(End::Cancelled) => return Standing::Cancelled(message()),
            None if self.object.kind().is_plugins() => return self.plugins_standing(),
            None => {}
        }
        match self.object.phase() {
            "InProgress" => Standing::Running,
            "Canceling" => Standing::Waiting(format!("the mover{on} to stop")),
            "Prepared" | "New" if self.ahead(world).is_some() => {
                let ahead = self.ahead(world).map(|other| other.reference().to_string()).unwrap_or_default();
                Standing::Patient(format!("its turn{on}, behind {ahead}"))
            }
            "Accepted" => Standing::Waiting(format!("the mover's pod{on} to start")),
            "Prepared" => Standing::Waiting(format!("the node agent{on} to begin")),
            _ if self.object.kind() == Kind::PodVolumeRestore => match self.pod() {
                Some((namespace, pod)) => Standing::Waiting(format!("pod {namespace}/{pod} to wait for its volume")),
                None => Standing::Waiting("its pod".to_owned()),
            },
            _ => Standing::Waiting(format!("the node agent{on} to take it up")),
        }
    }

    /// A plugin that says nothing is not called stalled for that alone.
    fn plugins_standing(self) -> Standing {
        match self.object.phase() {
            _ if self.counts() => Standing::Running,
            "New" => Standing::Patient("the plugin to say something".to_owned()),
            _ => Standing::Quiet,
        }
    }
}
