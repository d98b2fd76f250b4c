//! Volume data on its way, as the command line sees it: one shape for both directions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::summary::ProgressSummary;
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeRestore, TransferPhase, TransferProgress};
use plimsoll_api::velero::v2alpha1::{DataDownload, DataUpload};
use plimsoll_progress::percent_string;
use serde::Serialize;

/// Where a transfer has no pod of its user's.
pub const NO_POD: &str = "-";

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Direction {
    Backup,
    Restore,
}

impl Direction {
    /// For tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Backup => "backup",
            Self::Restore => "restore",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Backup => labels::BACKUP_NAME,
            Self::Restore => labels::RESTORE_NAME,
        }
    }
}

/// One transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Transfer {
    /// What its object is.
    pub kind: &'static str,
    pub direction: Direction,
    pub name: String,
    /// The backup or restore it belongs to.
    pub of: String,
    pub namespace: String,
    pub pod: String,
    pub volume: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    pub uploader: String,
    pub phase: String,
    /// How far it is by the server's word, which puts a plugin's numbers right where they go back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<String>,
    /// Whether the total may still grow.
    #[serde(skip)]
    pub is_estimate: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_done: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incremental_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_done: Option<u64>,
    /// What it does or waits for right now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// Bytes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<[u64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// What a plugin wants users to know.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub plugin_specific: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<Timestamp>,
}

/// The agent marks the percentage of a total that may still grow.
fn is_estimate(live: &ProgressSummary) -> bool {
    live.percent.as_deref().is_some_and(|percent| percent.starts_with('~'))
}

fn count(number: Option<i64>) -> Option<u64> {
    number.and_then(|number| u64::try_from(number).ok())
}

/// Old objects, and those that have just begun, say nothing or zero.
fn bytes(progress: Option<&TransferProgress>) -> (Option<u64>, Option<u64>) {
    let total = progress.and_then(|progress| count(progress.total_bytes));
    let done = progress.and_then(|progress| count(progress.bytes_done));
    (total, done)
}

impl From<&PodVolumeBackup> for Transfer {
    fn from(object: &PodVolumeBackup) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        let pod = spec.pod.clone().unwrap_or_default();
        let (total_bytes, bytes_done) = bytes(status.progress.as_ref());
        let live = status.plimsoll.unwrap_or_default();
        Self {
            kind: "PodVolumeBackup",
            direction: Direction::Backup,
            name: object.name_any(),
            of: object.labels().get(labels::BACKUP_NAME).cloned().unwrap_or_default(),
            namespace: pod.namespace.unwrap_or_default(),
            pod: pod.name.unwrap_or_default(),
            volume: spec.volume.clone().unwrap_or_default(),
            node: spec.node.clone().unwrap_or_default(),
            uploader: spec.uploader_type.as_ref().map(ToString::to_string).unwrap_or_default(),
            phase: object.phase().to_string(),
            percent: None,
            is_estimate: is_estimate(&live),
            total_bytes,
            bytes_done,
            incremental_bytes: count(status.incremental_bytes),
            total_files: count(live.total_files),
            files_done: count(live.files_done),
            doing: live.doing.filter(|_| !object.phase().is_ended()),
            rate: count(live.rate),
            seconds_left: live.seconds_left.map(|left| left.map(|seconds| u64::try_from(seconds).unwrap_or(0))),
            stalled: live.stalled.and_then(|stall| stall.message),
            message: status.message.filter(|text| !text.is_empty()),
            snapshot: status.snapshot_id.filter(|text| !text.is_empty()),
            plugin_specific: BTreeMap::new(),
            created: object.creation_timestamp().map(|time| time.0),
            started: status.start_timestamp.map(|time| time.0),
            completed: status.completion_timestamp.map(|time| time.0),
        }
    }
}

impl From<&PodVolumeRestore> for Transfer {
    fn from(object: &PodVolumeRestore) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        let pod = spec.pod.clone().unwrap_or_default();
        let (total_bytes, bytes_done) = bytes(status.progress.as_ref());
        let live = status.plimsoll.unwrap_or_default();
        Self {
            kind: "PodVolumeRestore",
            direction: Direction::Restore,
            name: object.name_any(),
            of: object.labels().get(labels::RESTORE_NAME).cloned().unwrap_or_default(),
            namespace: pod.namespace.unwrap_or_default(),
            pod: pod.name.unwrap_or_default(),
            volume: spec.volume.clone().unwrap_or_default(),
            node: status.node.unwrap_or_default(),
            uploader: spec.uploader_type.as_ref().map(ToString::to_string).unwrap_or_default(),
            phase: object.phase().to_string(),
            percent: None,
            is_estimate: is_estimate(&live),
            total_bytes,
            bytes_done,
            incremental_bytes: None,
            total_files: count(live.total_files),
            files_done: count(live.files_done),
            doing: live.doing.filter(|_| !object.phase().is_ended()),
            rate: count(live.rate),
            seconds_left: live.seconds_left.map(|left| left.map(|seconds| u64::try_from(seconds).unwrap_or(0))),
            stalled: live.stalled.and_then(|stall| stall.message),
            message: status.message.filter(|text| !text.is_empty()),
            snapshot: spec.snapshot_id.clone().filter(|text| !text.is_empty()),
            plugin_specific: BTreeMap::new(),
            created: object.creation_timestamp().map(|time| time.0),
            started: status.start_timestamp.map(|time| time.0),
            completed: status.completion_timestamp.map(|time| time.0),
        }
    }
}

/// What does the moving, as an object without a type of uploader says it: Velero knows only kopia.
fn uploader(object: &impl ResourceExt) -> String {
    object.annotations().get(labels::MOVER).map_or("kopia", String::as_str).to_owned()
}

/// Data of a snapshot has no pod: its claim stands for the volume.
impl From<&DataUpload> for Transfer {
    fn from(object: &DataUpload) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        let (total_bytes, bytes_done) = bytes(status.progress.as_ref());
        let live = status.plimsoll.unwrap_or_default();
        Self {
            kind: "DataUpload",
            direction: Direction::Backup,
            name: object.name_any(),
            of: object.labels().get(labels::BACKUP_NAME).cloned().unwrap_or_default(),
            namespace: spec.source_namespace.clone().unwrap_or_default(),
            pod: NO_POD.to_owned(),
            volume: spec.source_pvc.clone().unwrap_or_default(),
            node: status.node.unwrap_or_default(),
            uploader: uploader(object),
            phase: object.phase().to_string(),
            percent: None,
            is_estimate: is_estimate(&live),
            total_bytes,
            bytes_done,
            incremental_bytes: count(status.incremental_bytes),
            total_files: count(live.total_files),
            files_done: count(live.files_done),
            doing: live.doing.filter(|_| !object.phase().is_ended()),
            rate: count(live.rate),
            seconds_left: live.seconds_left.map(|left| left.map(|seconds| u64::try_from(seconds).unwrap_or(0))),
            stalled: live.stalled.and_then(|stall| stall.message),
            message: status.message.filter(|text| !text.is_empty()),
            snapshot: status.snapshot_id.filter(|text| !text.is_empty()),
            plugin_specific: BTreeMap::new(),
            created: object.creation_timestamp().map(|time| time.0),
            started: status.start_timestamp.map(|time| time.0),
            completed: status.completion_timestamp.map(|time| time.0),
        }
    }
}

impl From<&DataDownload> for Transfer {
    fn from(object: &DataDownload) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        let target = spec.target_volume.clone().unwrap_or_default();
        let (total_bytes, bytes_done) = bytes(status.progress.as_ref());
        let live = status.plimsoll.unwrap_or_default();
        Self {
            kind: "DataDownload",
            direction: Direction::Restore,
            name: object.name_any(),
            of: object.labels().get(labels::RESTORE_NAME).cloned().unwrap_or_default(),
            namespace: target.namespace.unwrap_or_default(),
            pod: NO_POD.to_owned(),
            volume: target.pvc.unwrap_or_default(),
            node: status.node.unwrap_or_default(),
            uploader: uploader(object),
            phase: object.phase().to_string(),
            percent: None,
            is_estimate: is_estimate(&live),
            total_bytes,
            bytes_done,
            incremental_bytes: None,
            total_files: count(live.total_files),
            files_done: count(live.files_done),
            doing: live.doing.filter(|_| !object.phase().is_ended()),
            rate: count(live.rate),
            seconds_left: live.seconds_left.map(|left| left.map(|seconds| u64::try_from(seconds).unwrap_or(0))),
            stalled: live.stalled.and_then(|stall| stall.message),
            message: status.message.filter(|text| !text.is_empty()),
            snapshot: spec.snapshot_id.clone().filter(|text| !text.is_empty()),
            plugin_specific: BTreeMap::new(),
            created: object.creation_timestamp().map(|time| time.0),
            started: status.start_timestamp.map(|time| time.0),
            completed: status.completion_timestamp.map(|time| time.0),
        }
    }
}

impl Transfer {
    /// Whether it will not change any more. A plugin ends in words of its own, but says when.
    pub fn is_ended(&self) -> bool {
        self.completed.is_some() || TransferPhase::from(self.phase.as_str()).is_ended()
    }

    /// Where the volume belongs: `namespace/pod` as far as there are such.
    pub fn place(&self) -> String {
        if self.namespace.is_empty() { self.pod.clone() } else { format!("{}/{}", self.namespace, self.pod) }
    }

    /// Whether it is the data of a snapshot, and not of a pod's volume.
    pub fn is_moved(&self) -> bool {
        self.pod == NO_POD
    }

    /// How far it is, marked while the total may grow. 100 only at a good end.
    pub fn percent(&self) -> Option<String> {
        if self.percent.is_some() {
            return self.percent.clone();
        }
        let ended = self.phase == TransferPhase::Completed.as_str();
        let total = self.total_bytes.filter(|total| *total > 0)?;
        let mark = if self.is_estimate && !ended { "~" } else { "" };
        Some(format!("{mark}{}", percent_string(self.bytes_done.unwrap_or(0).min(total), total, ended)))
    }

    /// The volume's name with what its group tells, as Velero tells it.
    fn words(&self) -> String {
        let volume = &self.volume;
        match self.phase.as_str() {
            // An estimate is no total that is known.
            "InProgress" | "Canceling" => match self.percent().filter(|percent| !percent.starts_with('~')) {
                Some(percent) => format!("{volume} ({percent}%)"),
                None => volume.clone(),
            },
            "Completed" if self.direction == Direction::Backup => match (self.total_bytes, self.incremental_bytes) {
                (Some(size), Some(new)) => format!("{volume} (size: {size}, incremental size: {new})"),
                (Some(size), None) => format!("{volume} (size: {size})"),
                (None, _) => volume.clone(),
            },
            _ => volume.clone(),
        }
    }
}

/// Phases in the order in which Velero's command line lists them, and its words for them.
const GROUPS: [(&str, &str); 8] = [
    ("Completed", "Completed"),
    ("Canceled", "Canceled"),
    ("Failed", "Failed"),
    ("Canceling", "Canceling"),
    ("InProgress", "In Progress"),
    ("Prepared", "Prepared"),
    ("Accepted", "Accepted"),
    ("New", "New"),
];

/// Transfers of one phase: `In Progress`, how many, and a line for each pod, `ns/pod: data (42.17%), other`.
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    pub title: &'static str,
    pub count: usize,
    pub lines: Vec<String>,
    /// Whether its lines change while one looks.
    pub running: bool,
}

/// By phase, then by pod.
pub fn groups(transfers: &[Transfer]) -> Vec<Group> {
    let group = |(phase, title): &(&str, &'static str)| {
        let mut members: Vec<&Transfer> = transfers.iter().filter(|transfer| transfer.phase == *phase).collect();
        members.sort_by_key(|one| (one.namespace.clone(), one.pod.clone(), one.volume.clone()));
        let mut lines: Vec<(String, String)> = Vec::new();
        for one in &members {
            let pod = if one.is_moved() { one.namespace.clone() } else { format!("{}/{}", one.namespace, one.pod) };
            match lines.last_mut() {
                Some((last, words)) if *last == pod => *words = format!("{words}, {}", one.words()),
                _ => lines.push((pod, one.words())),
            }
        }
        let lines = lines.into_iter().map(|(pod, words)| format!("{pod}: {words}")).collect();
        let running = matches!(*phase, "InProgress" | "Canceling");
        Group { title, count: members.len(), lines, running }
    };
    GROUPS.iter().map(group).filter(|group| group.count > 0).collect()
}

/// Whose transfers.
#[derive(Clone, Copy, Debug)]
pub enum Of<'a> {
    All,
    Backup(&'a str),
    Restore(&'a str),
}

/// Reads transfers, oldest first. A cluster that does not know the kinds has none.
pub async fn list(client: &Client, namespace: &str, of: Of<'_>) -> anyhow::Result<Vec<Transfer>> {
    let mut found = Vec::new();
    if let Some(parameters) = parameters(of, Direction::Backup) {
        let api: Api<PodVolumeBackup> = Api::namespaced(client.clone(), namespace);
        let all = known(api.list(&parameters).await)?;
        found.extend(all.iter().map(Transfer::from));
    }
    if let Some(parameters) = parameters(of, Direction::Restore) {
        let api: Api<PodVolumeRestore> = Api::namespaced(client.clone(), namespace);
        let all = known(api.list(&parameters).await)?;
        found.extend(all.iter().map(Transfer::from));
    }
    found.sort_by_key(|transfer| (transfer.created, transfer.name.clone()));
    Ok(found)
}

/// Reads the transfers of CSI snapshots' data, oldest first.
pub async fn moved(client: &Client, namespace: &str, of: Of<'_>) -> anyhow::Result<Vec<Transfer>> {
    let mut found = Vec::new();
    if let Some(parameters) = parameters(of, Direction::Backup) {
        let api: Api<DataUpload> = Api::namespaced(client.clone(), namespace);
        let all = known(api.list(&parameters).await)?;
        found.extend(all.iter().map(Transfer::from));
    }
    if let Some(parameters) = parameters(of, Direction::Restore) {
        let api: Api<DataDownload> = Api::namespaced(client.clone(), namespace);
        let all = known(api.list(&parameters).await)?;
        found.extend(all.iter().map(Transfer::from));
    }
    found.sort_by_key(|transfer| (transfer.created, transfer.name.clone()));
    Ok(found)
}

/// What asks for these, if there are such in this direction.
pub fn parameters(of: Of<'_>, direction: Direction) -> Option<ListParams> {
    let name = match (of, direction) {
        (Of::All, _) => return Some(ListParams::default()),
        (Of::Backup(name), Direction::Backup) | (Of::Restore(name), Direction::Restore) => name,
        _ => return None,
    };
    Some(ListParams::default().labels(&format!("{}={}", direction.label(), labels::valid_name(name))))
}

/// A cluster that does not know a kind has none of it.
pub fn known<K: Clone>(answer: kube::Result<kube::core::ObjectList<K>>) -> kube::Result<Vec<K>> {
    match answer {
        Ok(list) => Ok(list.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "what json! makes is given away")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn backup(name: &str, pod: &str, volume: &str, status: Value) -> Transfer {
        let object: PodVolumeBackup = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "velero.io/backup-name": "b" } },
            "spec": { "pod": { "namespace": "shop", "name": pod }, "volume": volume, "uploaderType": "kopia" },
            "status": status,
        }))
        .unwrap();
        Transfer::from(&object)
    }

    #[test]
    fn a_running_transfer_shows_its_percentage_if_its_total_is_known_and_its_bare_name_otherwise() {
        let all = [
            backup(
                "a",
                "db-0",
                "data",
                json!({ "phase": "InProgress", "progress": { "totalBytes": 10_000, "bytesDone": 4217 } }),
            ),
            backup("b", "db-0", "wal", json!({ "phase": "InProgress" })),
            backup(
                "g",
                "web",
                "estimated",
                json!({ "phase": "InProgress", "progress": { "totalBytes": 10_000, "bytesDone": 4333 },
                    "plimsoll": { "percent": "~43.33" } }),
            ),
            backup("c", "web", "files", json!({ "phase": "InProgress", "progress": { "bytesDone": 17 } })),
            backup(
                "d",
                "db-1",
                "data",
                json!({ "phase": "Completed", "progress": { "totalBytes": 9, "bytesDone": 9 }, "incrementalBytes": 4 }),
            ),
            backup("e", "db-2", "data", json!({ "phase": "Completed" })),
            backup("f", "db-3", "data", json!({})),
        ];
        assert_eq!(all[2].percent().as_deref(), Some("~43.33"));
        let shown: Vec<_> = groups(&all).into_iter().map(|group| (group.title, group.count, group.lines)).collect();
        let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            shown,
            [
                ("Completed", 2, lines(&["shop/db-1: data (size: 9, incremental size: 4)", "shop/db-2: data"])),
                ("In Progress", 4, lines(&["shop/db-0: data (42.17%), wal", "shop/web: estimated, files"])),
                ("New", 1, lines(&["shop/db-3: data"])),
            ]
        );
    }

    #[test]
    fn nothing_reads_whole_before_it_has_ended_well() {
        let progress = json!({ "totalBytes": 10, "bytesDone": 10 });
        assert_eq!(
            backup("a", "p", "v", json!({ "phase": "InProgress", "progress": progress })).percent().unwrap(),
            "99.99"
        );
        assert_eq!(
            backup("a", "p", "v", json!({ "phase": "Completed", "progress": progress })).percent().unwrap(),
            "100.00"
        );
        assert_eq!(backup("a", "p", "v", json!({ "phase": "Completed" })).percent(), None);
    }
}
