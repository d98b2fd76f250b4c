//! What is shown now, and what has changed since when: a reader that comes back gets only what it has missed.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use plimsoll_observe::{Line, Object, World};
use plimsoll_progress::{Snapshot, Trees, Unit};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use crate::feed::Due;
use crate::metrics::{self, Totals};
use crate::model::{self, Detail, Row};
use crate::sections::sections;
use crate::shelf::Shelf;
use crate::trail::{Point, Recent, Trails};
use crate::volumes::Volume;

/// So long after the last question the cluster is no longer watched.
const PATIENCE: Duration = Duration::from_mins(2);
/// A picture that is older than this is not given to whoever comes anew.
const FRESH: Duration = Duration::from_secs(5);
/// Whoever comes first waits at most this long for the first picture.
const FIRST: Duration = Duration::from_secs(20);

/// What is shown.
pub struct Board {
    state: Mutex<State>,
    news: watch::Sender<u64>,
    boot: String,
    readers: AtomicUsize,
    asked: Mutex<Option<Instant>>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    sequence: u64,
    drawn: Option<Instant>,
    now: i64,
    rows: Shelf<Row>,
    volumes: Shelf<Volume>,
    sections: BTreeMap<&'static str, (u64, Value)>,
    lines: HashMap<String, Line>,
    trails: Trails,
    throughput: Recent,
    totals: Totals,
    world: Option<Arc<World>>,
}

/// What a reader has not seen yet.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct News {
    /// Of this shape.
    pub version: u32,
    /// Where the reader is after this.
    #[serde(skip)]
    pub sequence: u64,
    /// This is everything; what is not in it is not there.
    pub full: bool,
    /// By the clock of the cluster, in milliseconds since 1970.
    pub now: i64,
    /// Operations that are new or changed.
    pub rows: Vec<Row>,
    /// Operations that are gone.
    pub removed: Vec<String>,
    /// Volumes that are new or changed.
    pub volumes: Vec<Volume>,
    /// Volumes that are gone.
    pub removed_volumes: Vec<String>,
    /// Sections that changed, whole.
    pub sections: BTreeMap<&'static str, Value>,
    /// Bytes a second of everything together: all of it in a full one, else the latest.
    pub throughput: Vec<Point>,
}

/// Somebody looks on for as long as this lives.
pub struct Reader {
    board: Arc<Board>,
    pub news: watch::Receiver<u64>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.board.touch();
        self.board.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Board {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            news: watch::Sender::new(0),
            boot: hex::encode(rand::random::<[u8; 4]>()),
            readers: AtomicUsize::new(0),
            asked: Mutex::new(None),
            wake: Notify::new(),
        })
    }

    /// Looks on, unless `most` others do.
    pub fn read(self: &Arc<Self>, most: usize) -> Option<Reader> {
        self.touch();
        let entered =
            self.readers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| (now < most).then_some(now + 1));
        entered.ok()?;
        Some(Reader { board: Arc::clone(self), news: self.news.subscribe() })
    }

    /// Somebody asked.
    fn touch(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.wake.notify_one();
    }

    /// Whether anybody looks on, or has asked not long ago.
    pub fn is_wanted(&self) -> bool {
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        self.readers.load(Ordering::Relaxed) > 0 || asked.is_some_and(|at| at.elapsed() < PATIENCE)
    }

    /// Waits until somebody asks.
    pub async fn wanted(&self) {
        while !self.is_wanted() {
            self.wake.notified().await;
        }
    }

    /// Waits until there is a picture worth showing; says whether there is.
    pub async fn fresh(&self) -> bool {
        self.touch();
        let mut news = self.news.subscribe();
        let is_fresh = |_: &u64| self.lock().drawn.is_some_and(|drawn| drawn.elapsed() < FRESH);
        matches!(tokio::time::timeout(FIRST, news.wait_for(is_fresh)).await, Ok(Ok(_)))
    }

    /// Takes a new picture.
    pub fn take(&self, world: Arc<World>, lines: Vec<Line>, volumes: Vec<Volume>, due: Due) {
        let objects = index(&world);
        let rows: Vec<Row> = lines.iter().map(|line| row(line, &objects, world.now)).collect();
        let sections = sections(&world, due);
        let mut state = self.lock();
        state.sequence += 1;
        state.now = world.now.as_millisecond();
        state.drawn = Some(Instant::now());
        state.totals.see(&lines, &objects);
        state.follow(&lines, &rows, Timestamp::now());
        let sequence = state.sequence;
        state.rows.put(sequence, rows.into_iter().map(|row| (row.key.clone(), row)));
        state.volumes.put(sequence, volumes.into_iter().map(|volume| (volume.key.clone(), volume)));
        for (name, value) in sections {
            state.section(name, value);
        }
        state.lines = lines.into_iter().map(|line| (model::key(&line), line)).collect();
        state.world = Some(world);
        drop(state);
        self.news.send_replace(sequence);
    }

    /// Notes how far the trees are that are in this process's memory, without a look at the cluster: a chart has a past even if nobody
    /// looked on.
    pub fn sample(&self, trees: &Trees, now: Timestamp) {
        let trees: Vec<(String, Snapshot)> =
            trees.keys().into_iter().filter_map(|uid| trees.snapshot(&uid).map(|tree| (uid, tree))).collect();
        let open = || trees.iter().filter(|(_, tree)| tree.state().is_open());
        let total = open().map(|(_, tree)| tree.speed()).filter(|speed| speed.unit == Unit::Bytes);
        let total = total.filter_map(|speed| speed.rate).fold(0, u64::saturating_add);
        let mut state = self.lock();
        state.trails.add(open().map(|(uid, tree)| (uid.as_str(), model::point(tree, now))));
        state.throughput.add(Point { at: now.as_millisecond(), rate: total, ..Point::default() });
    }

    /// What has changed since this place; everything if there is no such place.
    pub fn since(&self, place: Option<u64>) -> News {
        let state = self.lock();
        let is_known =
            |place: &u64| *place <= state.sequence && state.rows.knows(*place) && state.volumes.knows(*place);
        let known = place.filter(is_known);
        let (from, full) = (known.unwrap_or(0), known.is_none());
        let gone = |all: Vec<String>| if full { Vec::new() } else { all };
        let points = state.throughput.points();
        News {
            version: 1,
            sequence: state.sequence,
            full,
            now: state.now,
            rows: state.rows.changed(from),
            removed: gone(state.rows.gone(from)),
            volumes: state.volumes.changed(from),
            removed_volumes: gone(state.volumes.gone(from)),
            sections: (state.sections.iter().filter(|(_, (at, _))| *at > from))
                .map(|(name, (_, value))| (*name, value.clone()))
                .collect(),
            throughput: if full { points.collect() } else { points.rev().take(1).collect() },
        }
    }

    /// Everything about one operation.
    pub fn detail(&self, key: &str) -> Option<Detail> {
        let state = self.lock();
        let (line, row) = (state.lines.get(key)?, state.rows.get(key)?);
        Some(model::detail(line, row.clone(), state.trails.of(&row.uid)))
    }

    /// The object behind an operation.
    pub fn object(&self, key: &str) -> Option<(Line, Object)> {
        let state = self.lock();
        let line = state.lines.get(key)?;
        let object = state.world.as_ref()?.get(&line.reference)?.clone();
        Some((line.clone(), object))
    }

    /// The same in Prometheus' words.
    pub fn metrics(&self, due: Due) -> String {
        let state = self.lock();
        let Some(world) = &state.world else { return String::new() };
        let lines: Vec<&Line> = state.lines.values().collect();
        metrics::text(&lines, world, &state.totals, due)
    }

    /// Where a reader is, in words that another process does not mistake for its own.
    pub fn place(&self, sequence: u64) -> String {
        format!("{}-{sequence}", self.boot)
    }

    /// The place in such words.
    pub fn find_place(&self, words: &str) -> Option<u64> {
        words.strip_prefix(&self.boot)?.strip_prefix('-')?.parse().ok()
    }

    #[cfg(test)]
    pub fn points_of(&self, uid: &str) -> usize {
        self.lock().trails.of(uid).len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Index<'w> = HashMap<(plimsoll_observe::Kind, &'w str, &'w str), &'w Object>;

/// Objects by their names: searching for each of a thousand among thousands takes too long.
fn index(world: &World) -> Index<'_> {
    let all = plimsoll_observe::Kind::CUSTOM.into_iter().flat_map(|kind| world.all(kind));
    all.map(|object| ((object.kind(), object.namespace(), object.name()), object)).collect()
}

fn row(line: &Line, objects: &Index<'_>, now: Timestamp) -> Row {
    model::row(line, find(line, objects), now)
}

/// The object of a line.
pub fn find<'w>(line: &Line, objects: &Index<'w>) -> Option<&'w Object> {
    let reference = &line.reference;
    objects.get(&(reference.kind, reference.namespace.as_str(), reference.name.as_str())).copied()
}

impl State {
    fn section(&mut self, name: &'static str, value: Value) {
        let sequence = self.sequence;
        if self.sections.get(name).is_none_or(|(_, kept)| *kept != value) {
            self.sections.insert(name, (sequence, value));
        }
    }

    /// By this process's clock, as `sample` does: whoever has not asked the cluster knows no other.
    fn follow(&mut self, lines: &[Line], rows: &[Row], now: Timestamp) {
        let open = || lines.iter().zip(rows).filter(|(line, _)| !line.told.verdict.is_ended());
        self.trails.add(open().map(|(line, row)| (row.uid.as_str(), model::point(&line.told.tree, now))));
        let total = open().map(|(_, row)| row.bytes_rate).fold(0, u64::saturating_add);
        self.throughput.add(Point { at: now.as_millisecond(), rate: total, ..Point::default() });
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

    fn world(names: &[(&str, u64)]) -> World {
        let backup = |(name, done): &(&str, u64)| {
            json!({ "metadata": { "name": name, "namespace": "velero", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
                "status": { "phase": "InProgress", "startTimestamp": "2026-01-01T00:00:00Z",
                    "progress": { "totalItems": 100, "itemsBackedUp": done } } })
        };
        let now = "2026-01-01T00:00:05Z".parse().unwrap();
        names.iter().fold(World::new("velero", now), |world, backup_| world.with(Kind::Backup, backup(backup_)))
    }

    fn show(board: &Board, overview: &mut Overview, names: &[(&str, u64)]) {
        let world = world(names);
        let lines = overview.look(&world);
        board.take(Arc::new(world), lines, Vec::new(), never);
    }

    #[test]
    fn who_opens_a_page_at_the_end_of_a_long_backup_finds_its_whole_past() {
        let clock = VirtualClock::new();
        let operation = Operation::new("backup-a", clock.clock());
        let volume = operation.root().child("data");
        let bytes = volume.meter(Unit::Bytes);
        bytes.set_total(Total::Final(1 << 40));
        let trees = Trees::default();
        let observer = operation.observer();
        let _shown = trees.show("a", move || Some(observer.snapshot()));
        let board = Board::new();
        let (end, steps) = (Timestamp::now(), 3 * 720_u32);
        for step in 0..steps {
            bytes.add(50 << 20);
            clock.advance(Duration::from_secs(5));
            board.sample(&trees, end - Duration::from_secs(5) * (steps - step));
        }
        show(&board, &mut Overview::with(trees), &[("a", 1)]);
        let trail = board.detail("backup/velero/a").unwrap().trail;
        assert!(trail.len() >= 90, "{} points", trail.len());
        let seen = Duration::from_millis(u64::try_from(trail[trail.len() - 1].at - trail[0].at).unwrap());
        assert!(seen > Duration::from_mins(170), "{seen:?}");
        assert!(trail.iter().skip(2).all(|point| point.rate == 10 << 20 && point.left.is_some()), "{trail:?}");
        assert!(board.since(None).throughput.len() > 600, "the last hour of everything together");
    }

    #[test]
    fn a_reader_that_comes_back_gets_what_it_has_missed_and_no_more() {
        let (board, mut overview) = (Board::new(), Overview::default());
        show(&board, &mut overview, &[("a", 1), ("b", 1), ("c", 1)]);
        let first = board.since(None);
        assert!(first.full && first.rows.len() == 3);
        show(&board, &mut overview, &[("a", 1), ("b", 50)]);
        show(&board, &mut overview, &[("a", 1), ("b", 50), ("d", 2)]);
        let place = board.find_place(&board.place(first.sequence));
        let missed = board.since(place);
        let names: Vec<&str> = missed.rows.iter().map(|row| row.name.as_str()).collect();
        assert!(!missed.full);
        assert_eq!(names, ["b", "d"]);
        assert_eq!(missed.removed, ["backup/velero/c"]);
        assert!(board.since(Some(missed.sequence)).rows.is_empty());
    }

    #[test]
    fn a_place_of_another_process_or_of_the_future_means_everything() {
        let (board, mut overview) = (Board::new(), Overview::default());
        show(&board, &mut overview, &[("a", 1)]);
        assert_eq!(board.find_place(&Board::new().place(1)), None);
        assert!(board.since(Some(99)).full && board.since(None).full);
    }
}
