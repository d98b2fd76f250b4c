//! What the dashboard shows, and the update in which each part changed: a reconnecting reader gets only what it has missed.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use plimsoll_observe::{ClusterState, Object, OperationSummary, operation_of};
use plimsoll_progress::{Sample, Snapshot, Trees, Unit};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use crate::change_log::ChangeLog;
use crate::history::{Histories, RecentSamples};
use crate::metrics::{self, Totals};
use crate::refresh::NextRun;
use crate::rows::{self, Detail, Row};
use crate::sections::sections;
use crate::volumes::Volume;

/// The cluster is no longer watched this long after the last request.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
/// An older state is not sent to a new reader.
const MAX_STATE_AGE: Duration = Duration::from_secs(5);
/// The first reader waits at most this long for the first state.
const FIRST_STATE_TIMEOUT: Duration = Duration::from_secs(20);

/// The state that the dashboard shows.
pub struct DashboardState {
    state: Mutex<State>,
    updates: watch::Sender<u64>,
    /// Distinguishes the event ids of this process from those of another one.
    instance: String,
    readers: AtomicUsize,
    last_request: Mutex<Option<Instant>>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    sequence: u64,
    updated: Option<Instant>,
    now: i64,
    rows: ChangeLog<Row>,
    volumes: ChangeLog<Volume>,
    sections: BTreeMap<&'static str, (u64, Value)>,
    lines: HashMap<String, OperationSummary>,
    histories: Histories,
    throughput: RecentSamples,
    totals: Totals,
    cluster: Option<Arc<ClusterState>>,
}

/// The changes that a reader has not seen yet.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Update {
    /// The version of this shape.
    pub version: u32,
    /// The update that the reader has after this.
    #[serde(skip)]
    pub sequence: u64,
    /// This is the whole state: what it does not contain does not exist.
    pub full: bool,
    /// The time by the cluster's clock, in milliseconds since 1970.
    pub now: i64,
    /// New or changed operations.
    pub rows: Vec<Row>,
    /// Keys of removed operations.
    pub removed: Vec<String>,
    /// New or changed volumes.
    pub volumes: Vec<Volume>,
    /// Keys of removed volumes.
    pub removed_volumes: Vec<String>,
    /// Changed sections, each complete.
    pub sections: BTreeMap<&'static str, Value>,
    /// Total bytes per second: all samples in a full update, else the latest.
    pub throughput: Vec<Sample>,
}

/// A reader of events for as long as this lives.
pub struct Reader {
    dashboard: Arc<DashboardState>,
    pub updates: watch::Receiver<u64>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.dashboard.note_request();
        self.dashboard.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DashboardState {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            updates: watch::Sender::new(0),
            instance: hex::encode(rand::random::<[u8; 4]>()),
            readers: AtomicUsize::new(0),
            last_request: Mutex::new(None),
            wake: Notify::new(),
        })
    }

    /// Adds a reader, unless there are `max` already.
    pub fn add_reader(self: &Arc<Self>, max: usize) -> Option<Reader> {
        self.note_request();
        let entered =
            self.readers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| (now < max).then_some(now + 1));
        entered.ok()?;
        Some(Reader { dashboard: Arc::clone(self), updates: self.updates.subscribe() })
    }

    /// Keeps the cluster watched for a while.
    fn note_request(&self) {
        *self.last_request.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.wake.notify_one();
    }

    /// Whether there is a reader, or was a request not long ago.
    pub fn is_watched(&self) -> bool {
        let last_request = *self.last_request.lock().unwrap_or_else(PoisonError::into_inner);
        self.readers.load(Ordering::Relaxed) > 0 || last_request.is_some_and(|at| at.elapsed() < IDLE_TIMEOUT)
    }

    /// Waits for a reader or a request.
    pub async fn wait_until_watched(&self) {
        while !self.is_watched() {
            self.wake.notified().await;
        }
    }

    /// Waits for a recent state; returns whether there is one.
    pub async fn wait_until_fresh(&self) -> bool {
        self.note_request();
        let mut updates = self.updates.subscribe();
        let is_fresh = |_: &u64| self.lock().updated.is_some_and(|updated| updated.elapsed() < MAX_STATE_AGE);
        matches!(tokio::time::timeout(FIRST_STATE_TIMEOUT, updates.wait_for(is_fresh)).await, Ok(Ok(_)))
    }

    /// Replaces the state.
    pub fn update(
        &self,
        cluster: Arc<ClusterState>,
        lines: Vec<OperationSummary>,
        volumes: Vec<Volume>,
        next_run: NextRun,
    ) {
        let objects = index(&cluster);
        let rows: Vec<Row> = lines.iter().map(|line| row(line, &objects, cluster.now)).collect();
        let sections = sections(&cluster, next_run);
        let mut state = self.lock();
        state.sequence += 1;
        state.now = cluster.now.as_millisecond();
        state.updated = Some(Instant::now());
        state.totals.record(&lines, &objects);
        state.record_samples(&lines, &rows, Timestamp::now());
        let sequence = state.sequence;
        state.rows.replace_all(sequence, rows.into_iter().map(|row| (row.key.clone(), row)));
        state.volumes.replace_all(sequence, volumes.into_iter().map(|volume| (volume.key.clone(), volume)));
        for (name, value) in sections {
            state.set_section(name, value);
        }
        state.lines = lines.into_iter().map(|line| (rows::key(&line), line)).collect();
        state.cluster = Some(cluster);
        drop(state);
        self.updates.send_replace(sequence);
    }

    /// Records a sample of each tree in this process's memory, without a request to the cluster: charts have a history even
    /// without a reader.
    pub fn record_sample(&self, trees: &Trees, now: Timestamp) {
        let trees: Vec<(String, Snapshot)> =
            trees.keys().into_iter().filter_map(|uid| trees.snapshot(&uid).map(|tree| (uid, tree))).collect();
        let open = || trees.iter().filter(|(_, tree)| tree.state().is_open());
        let total = open().map(|(_, tree)| tree.speed()).filter(|speed| speed.unit == Unit::Bytes);
        let total = total.filter_map(|speed| speed.rate).fold(0, u64::saturating_add);
        let mut state = self.lock();
        state.histories.add(open().map(|(uid, tree)| (uid.as_str(), rows::sample(tree, now))));
        state.throughput.add(Sample { at: now.as_millisecond(), rate: total, ..Sample::default() });
    }

    /// The changes since an update; the whole state if that update is not known any more.
    pub fn updates_since(&self, sequence: Option<u64>) -> Update {
        let state = self.lock();
        let is_known = |sequence: &u64| {
            *sequence <= state.sequence && state.rows.covers(*sequence) && state.volumes.covers(*sequence)
        };
        let known = sequence.filter(is_known);
        let (from, full) = (known.unwrap_or(0), known.is_none());
        let removed = |all: Vec<String>| if full { Vec::new() } else { all };
        let samples = state.throughput.samples();
        Update {
            version: 1,
            sequence: state.sequence,
            full,
            now: state.now,
            rows: state.rows.changed_since(from),
            removed: removed(state.rows.removed_since(from)),
            volumes: state.volumes.changed_since(from),
            removed_volumes: removed(state.volumes.removed_since(from)),
            sections: (state.sections.iter().filter(|(_, (at, _))| *at > from))
                .map(|(name, (_, value))| (*name, value.clone()))
                .collect(),
            throughput: if full { samples.collect() } else { samples.rev().take(1).collect() },
        }
    }

    /// Everything about one operation.
    pub fn detail(&self, key: &str) -> Option<Detail> {
        let state = self.lock();
        let (line, row) = (state.lines.get(key)?, state.rows.get(key)?);
        let cluster = state.cluster.as_deref();
        let written = cluster.and_then(|cluster| operation_of(cluster.get(&line.reference)?, cluster));
        Some(rows::detail(line, row.clone(), rows::samples(written, state.histories.of(&row.uid))))
    }

    /// The line and the object of an operation.
    pub fn find_object(&self, key: &str) -> Option<(OperationSummary, Object)> {
        let state = self.lock();
        let line = state.lines.get(key)?;
        let object = state.cluster.as_ref()?.get(&line.reference)?.clone();
        Some((line.clone(), object))
    }

    /// The metrics in Prometheus' text format.
    pub fn metrics(&self, next_run: NextRun) -> String {
        let state = self.lock();
        let Some(cluster) = &state.cluster else { return String::new() };
        let lines: Vec<&OperationSummary> = state.lines.values().collect();
        metrics::text(&lines, cluster, &state.totals, next_run)
    }

    /// The event id of an update; another process does not accept it.
    pub fn event_id(&self, sequence: u64) -> String {
        format!("{}-{sequence}", self.instance)
    }

    /// The update of an event id of this process.
    pub fn parse_event_id(&self, id: &str) -> Option<u64> {
        id.strip_prefix(&self.instance)?.strip_prefix('-')?.parse().ok()
    }

    #[cfg(test)]
    pub fn count_samples(&self, uid: &str) -> usize {
        self.lock().histories.of(uid).len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Index<'w> = HashMap<(plimsoll_observe::Kind, &'w str, &'w str), &'w Object>;

/// Objects by kind, namespace and name: a search for each of a thousand among thousands takes too long.
fn index(cluster: &ClusterState) -> Index<'_> {
    let all = plimsoll_observe::Kind::CUSTOM.into_iter().flat_map(|kind| cluster.all(kind));
    all.map(|object| ((object.kind(), object.namespace(), object.name()), object)).collect()
}

fn row(line: &OperationSummary, objects: &Index<'_>, now: Timestamp) -> Row {
    rows::row(line, find(line, objects), now)
}

/// The object of a line.
pub fn find<'w>(line: &OperationSummary, objects: &Index<'w>) -> Option<&'w Object> {
    let reference = &line.reference;
    objects.get(&(reference.kind, reference.namespace.as_str(), reference.name.as_str())).copied()
}

impl State {
    fn set_section(&mut self, name: &'static str, value: Value) {
        let sequence = self.sequence;
        if self.sections.get(name).is_none_or(|(_, current)| *current != value) {
            self.sections.insert(name, (sequence, value));
        }
    }

    /// Uses this process's clock, as `record_sample` does, which does not know the cluster's.
    fn record_samples(&mut self, lines: &[OperationSummary], rows: &[Row], now: Timestamp) {
        let open = || lines.iter().zip(rows).filter(|(line, _)| !line.explanation.verdict.is_ended());
        self.histories.add(open().map(|(line, row)| (row.uid.as_str(), rows::sample(&line.explanation.tree, now))));
        let total = open().map(|(_, row)| row.bytes_rate).fold(0, u64::saturating_add);
        self.throughput.add(Sample { at: now.as_millisecond(), rate: total, ..Sample::default() });
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_observe::{Kind, Overview};
    use plimsoll_progress::{Operation, Total, VirtualClock};
    use serde_json::json;

    use super::*;

    fn never(_: &str, _: Timestamp) -> Option<Timestamp> {
        None
    }

    fn cluster(names: &[(&str, u64)]) -> ClusterState {
        let backup = |(name, done): &(&str, u64)| {
            json!({ "metadata": { "name": name, "namespace": "velero", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
                "status": { "phase": "InProgress", "startTimestamp": "2026-01-01T00:00:00Z",
                    "progress": { "totalItems": 100, "itemsBackedUp": done } } })
        };
        let now = "2026-01-01T00:00:05Z".parse().unwrap();
        names
            .iter()
            .fold(ClusterState::new("velero", now), |cluster, backup_| cluster.with(Kind::Backup, backup(backup_)))
    }

    fn show(dashboard: &DashboardState, overview: &mut Overview, names: &[(&str, u64)]) {
        let cluster = cluster(names);
        let lines = overview.list_operations(&cluster);
        dashboard.update(Arc::new(cluster), lines, Vec::new(), never);
    }

    #[test]
    fn a_page_opened_at_the_end_of_a_long_backup_shows_its_whole_history() {
        let clock = VirtualClock::new();
        let operation = Operation::new("backup-a", clock.clock());
        let volume = operation.root().child("data");
        let bytes = volume.meter(Unit::Bytes);
        bytes.set_total(Total::Final(1 << 40));
        let trees = Trees::default();
        let observer = operation.observer();
        let _registration = trees.register("a", move || Some(observer.snapshot()));
        let dashboard = DashboardState::new();
        let (end, steps) = (Timestamp::now(), 3 * 720_u32);
        for step in 0..steps {
            bytes.add(50 << 20);
            clock.advance(Duration::from_secs(5));
            dashboard.record_sample(&trees, end - Duration::from_secs(5) * (steps - step));
        }
        show(&dashboard, &mut Overview::with_trees(trees), &[("a", 1)]);
        let history = dashboard.detail("backup/velero/a").unwrap().history;
        assert!(history.len() >= 90, "{} samples", history.len());
        let seen = Duration::from_millis(u64::try_from(history[history.len() - 1].at - history[0].at).unwrap());
        assert!(seen > Duration::from_mins(170), "{seen:?}");
        assert!(history.iter().skip(2).all(|sample| sample.rate == 10 << 20 && sample.left.is_some()), "{history:?}");
        assert!(dashboard.updates_since(None).throughput.len() > 600, "the total of the last hour");
    }

    #[test]
    fn after_a_restart_of_the_server_an_operation_has_the_chart_and_the_durations_that_were_written() {
        let clock = VirtualClock::new();
        let operation = Operation::new("backup-a", clock.clock());
        let volume = operation.root().child("volumes");
        volume.meter(Unit::Bytes).add(7 << 30);
        clock.advance(Duration::from_secs(90));
        operation.end(plimsoll_progress::Ending::Failed("disk full".into()));
        let tree = plimsoll_progress::truncate::ended(&operation.snapshot());
        let samples: Vec<_> = (0..40).map(|at| json!({ "at": at * 1000, "rate": 50 << 20, "percent": at })).collect();
        let backup = json!({ "metadata": { "name": "a", "namespace": "velero", "uid": "a", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "status": { "phase": "Failed", "failureReason": "disk full", "completionTimestamp": "2026-01-01T00:01:30Z" } });
        let record = json!({ "metadata": { "name": "backup-a", "namespace": "velero" }, "spec": { "subject": { "uid": "a" } },
            "status": { "tree": tree, "samples": samples } });
        let cluster = ClusterState::new("velero", "2026-01-01T00:02:00Z".parse().unwrap());
        let cluster = cluster.with(Kind::Backup, backup).with(Kind::Operation, record);
        let dashboard = DashboardState::new();
        let lines = Overview::default().list_operations(&cluster);
        dashboard.update(Arc::new(cluster), lines, Vec::new(), never);
        let detail = dashboard.detail("backup/velero/a").unwrap();
        assert_eq!(
            (detail.history.len(), detail.history[39].rate, detail.history[39].percent),
            (40, 50 << 20, Some(39))
        );
        let stage = detail.tree.iter().find(|row| row.label == "volumes").unwrap();
        assert_eq!((stage.elapsed.as_str(), stage.bytes.as_str()), ("1m30s", "7.0 GiB"));
        assert_eq!(detail.row.bytes, "7.0 GiB");
    }

    #[test]
    fn a_reconnecting_reader_gets_what_it_has_missed_and_no_more() {
        let (dashboard, mut overview) = (DashboardState::new(), Overview::default());
        show(&dashboard, &mut overview, &[("a", 1), ("b", 1), ("c", 1)]);
        let first = dashboard.updates_since(None);
        assert!(first.full && first.rows.len() == 3);
        show(&dashboard, &mut overview, &[("a", 1), ("b", 50)]);
        show(&dashboard, &mut overview, &[("a", 1), ("b", 50), ("d", 2)]);
        let last = dashboard.parse_event_id(&dashboard.event_id(first.sequence));
        let missed = dashboard.updates_since(last);
        let names: Vec<&str> = missed.rows.iter().map(|row| row.name.as_str()).collect();
        assert!(!missed.full);
        assert_eq!(names, ["b", "d"]);
        assert_eq!(missed.removed, ["backup/velero/c"]);
        assert!(dashboard.updates_since(Some(missed.sequence)).rows.is_empty());
    }

    #[test]
    fn an_event_id_of_another_process_or_of_the_future_means_everything() {
        let (dashboard, mut overview) = (DashboardState::new(), Overview::default());
        show(&dashboard, &mut overview, &[("a", 1)]);
        assert_eq!(dashboard.parse_event_id(&DashboardState::new().event_id(1)), None);
        assert!(dashboard.updates_since(Some(99)).full && dashboard.updates_since(None).full);
    }
}
