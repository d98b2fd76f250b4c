//! Transfers of volume data in one representation for all kinds of objects.

use std::collections::BTreeMap;
use std::fmt::Debug;

use jiff::Timestamp;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use plimsoll_api::labels;
use plimsoll_api::summary::ProgressSummary;
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeRestore, TransferPhase};
use plimsoll_api::velero::v2alpha1::{DataDownload, DataUpload};
use plimsoll_progress::{Counts, Total, Unit, percent_string};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::transfer_object::TransferObject;

/// Shown in place of a pod for a transfer without one.
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
    /// The kind of its object.
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
    /// Its current activity or wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// Bytes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<[u64; 2]>,
    /// `Stalled`, `Spinning`, `Crawling` or `Quiet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Which numbers these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Fields that a plugin reports to users.
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
    live.percent.as_deref().is_some_and(|percent| percent.starts_with(['~', '≥']))
}

fn count(number: Option<i64>) -> Option<u64> {
    number.and_then(|number| u64::try_from(number).ok())
}

impl<K: TransferObject> From<&K> for Transfer {
    fn from(object: &K) -> Self {
        let some = |text: Option<String>| text.filter(|text| !text.is_empty());
        let (fields, phase, transferred) = (object.fields(), object.phase(), object.progress());
        let live = object.summary().cloned().unwrap_or_default();
        Self {
            kind: K::KIND,
            direction: K::DIRECTION,
            name: object.name_any(),
            of: object.labels().get(K::DIRECTION.label()).cloned().unwrap_or_default(),
            namespace: fields.namespace.unwrap_or_default(),
            pod: fields.pod.unwrap_or_default(),
            volume: fields.volume.unwrap_or_default(),
            node: fields.node.unwrap_or_default(),
            uploader: fields.uploader,
            phase: phase.to_string(),
            percent: None,
            is_estimate: is_estimate(&live),
            total_bytes: transferred.and_then(|progress| count(progress.total_bytes)),
            bytes_done: transferred.and_then(|progress| count(progress.bytes_done)),
            incremental_bytes: count(fields.incremental_bytes),
            total_files: count(live.total_files),
            files_done: count(live.files_done),
            doing: live.doing.filter(|_| !phase.is_ended()),
            rate: count(live.rate),
            seconds_left: live.seconds_left.map(|left| left.map(|seconds| u64::try_from(seconds).unwrap_or(0))),
            verdict: live.verdict.filter(|_| !phase.is_ended()),
            token: live.token,
            stalled: live.stalled.and_then(|stall| stall.message),
            message: some(object.message().map(str::to_owned)),
            snapshot: some(fields.snapshot),
            plugin_specific: BTreeMap::new(),
            created: object.creation_timestamp().map(|time| time.0),
            started: object.start_timestamp().map(|time| time.0),
            completed: object.completion_timestamp().map(|time| time.0),
        }
    }
}

impl Transfer {
    /// Whether it will not change any more. A plugin ends in words of its own, but says when.
    pub fn is_ended(&self) -> bool {
        self.completed.is_some() || TransferPhase::from(self.phase.as_str()).is_ended()
    }

    /// The owner of the volume: `namespace/pod`, as far as they are known.
    pub fn place(&self) -> String {
        if self.namespace.is_empty() { self.pod.clone() } else { format!("{}/{}", self.namespace, self.pod) }
    }

    /// Whether it is the data of a snapshot, and not of a pod's volume.
    pub fn is_data_movement(&self) -> bool {
        self.pod == NO_POD
    }

    /// Its bytes. A total that may still grow is an estimate.
    pub fn bytes(&self) -> Counts {
        let total = self.total_bytes.filter(|total| *total > 0);
        let total = match (total, self.is_estimate && !self.is_ended()) {
            (None, _) => Total::Unknown,
            (Some(total), true) => Total::Growing(total),
            (Some(total), false) => Total::Final(total),
        };
        Counts { done: self.bytes_done.unwrap_or(0), total, ..Counts::zero(Unit::Bytes) }.covered()
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

    /// The volume's name with its group, as Velero shows it.
    fn volume_text(&self) -> String {
        let volume = &self.volume;
        match self.phase.as_str() {
            // An estimate is no total that is known.
            "InProgress" | "Canceling" => match self.percent().filter(|percent| !percent.starts_with(['~', '≥'])) {
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
            let pod =
                if one.is_data_movement() { one.namespace.clone() } else { format!("{}/{}", one.namespace, one.pod) };
            match lines.last_mut() {
                Some((last, words)) if *last == pod => *words = format!("{words}, {}", one.volume_text()),
                _ => lines.push((pod, one.volume_text())),
            }
        }
        let lines = lines.into_iter().map(|(pod, words)| format!("{pod}: {words}")).collect();
        let running = matches!(*phase, "InProgress" | "Canceling");
        Group { title, count: members.len(), lines, running }
    };
    GROUPS.iter().map(group).filter(|group| group.count > 0).collect()
}

/// Selects transfers by what they belong to.
#[derive(Clone, Copy, Debug)]
pub enum TransferFilter<'a> {
    All,
    Backup(&'a str),
    Restore(&'a str),
}

/// Reads the transfers of pod volumes, oldest first.
pub async fn list_pod_volumes(
    client: &Client,
    namespace: &str,
    filter: TransferFilter<'_>,
) -> anyhow::Result<Vec<Transfer>> {
    let mut found = list_kind::<PodVolumeBackup>(client, namespace, filter).await?;
    found.extend(list_kind::<PodVolumeRestore>(client, namespace, filter).await?);
    found.sort_by_key(|transfer| (transfer.created, transfer.name.clone()));
    Ok(found)
}

/// Reads the transfers of the data of CSI snapshots, oldest first.
pub async fn list_data_movements(
    client: &Client,
    namespace: &str,
    filter: TransferFilter<'_>,
) -> anyhow::Result<Vec<Transfer>> {
    let mut found = list_kind::<DataUpload>(client, namespace, filter).await?;
    found.extend(list_kind::<DataDownload>(client, namespace, filter).await?);
    found.sort_by_key(|transfer| (transfer.created, transfer.name.clone()));
    Ok(found)
}

async fn list_kind<K>(client: &Client, namespace: &str, filter: TransferFilter<'_>) -> anyhow::Result<Vec<Transfer>>
where
    K: TransferObject + Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let Some(parameters) = parameters(filter, K::DIRECTION) else { return Ok(Vec::new()) };
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    Ok(unless_unknown_kind(api.list(&parameters).await)?.iter().map(Transfer::from).collect())
}

/// What asks for these, if there are such in this direction.
pub fn parameters(of: TransferFilter<'_>, direction: Direction) -> Option<ListParams> {
    let name = match (of, direction) {
        (TransferFilter::All, _) => return Some(ListParams::default()),
        (TransferFilter::Backup(name), Direction::Backup) | (TransferFilter::Restore(name), Direction::Restore) => name,
        _ => return None,
    };
    Some(ListParams::default().labels(&format!("{}={}", direction.label(), labels::valid_name(name))))
}

/// A cluster that does not know a kind has none of it.
pub fn unless_unknown_kind<K: Clone>(answer: kube::Result<kube::core::ObjectList<K>>) -> kube::Result<Vec<K>> {
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
    fn no_transfer_looks_complete_before_it_has_completed() {
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
