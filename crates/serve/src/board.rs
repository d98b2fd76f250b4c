//! What is shown now, and what has changed since when: a reader that comes back gets only what it has missed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use plimsoll_observe::{Line, Object, World};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use crate::feed::Due;
use crate::metrics::{self, Tally};
use crate::model::{self, Detail, Row};
use crate::sections::sections;
use crate::trail::{Point, Trail, Trails};

/// So long after the last question the cluster is no longer watched.
const PATIENCE: Duration = Duration::from_mins(2);
/// A picture that is older than this is not given to whoever comes anew.
const FRESH: Duration = Duration::from_secs(5);
/// Whoever comes first waits at most this long for the first picture.
const FIRST: Duration = Duration::from_secs(20);
/// So many removals are remembered for readers that come back.
const MOST_GONE: usize = 4096;

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
    rows: BTreeMap<String, Kept<Row>>,
    gone: VecDeque<(u64, String)>,
    /// Removals up to here are forgotten.
    forgotten: u64,
    sections: BTreeMap<&'static str, Kept<Value>>,
    lines: HashMap<String, Line>,
    trails: Trails,
    throughput: Trail,
    tally: Tally,
    world: Option<Arc<World>>,
}

struct Kept<T> {
    value: T,
    sequence: u64,
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
    pub fn take(&self, world: Arc<World>, lines: Vec<Line>, due: Due) {
        let objects = index(&world);
        let rows: Vec<Row> = lines.iter().map(|line| row(line, &objects, world.now)).collect();
        let sections = sections(&world, due);
        let mut state = self.lock();
        state.sequence += 1;
        state.now = world.now.as_millisecond();
        state.drawn = Some(Instant::now());
        state.tally.see(&lines, &objects);
        state.follow(&lines, &rows, world.now);
        state.put(rows);
        for (name, value) in sections {
            state.section(name, value);
        }
        state.lines = lines.into_iter().map(|line| (model::key(&line), line)).collect();
        state.world = Some(world);
        let sequence = state.sequence;
        drop(state);
        self.news.send_replace(sequence);
    }

    /// What has changed since this place; everything if there is no such place.
    pub fn since(&self, place: Option<u64>) -> News {
        let state = self.lock();
        let known = place.filter(|place| *place >= state.forgotten && *place <= state.sequence);
        let from = known.unwrap_or(0);
        let full = known.is_none();
        let points = state.throughput.points();
        News {
            version: 1,
            sequence: state.sequence,
            full,
            now: state.now,
            rows: state.rows.values().filter(|kept| kept.sequence > from).map(|kept| kept.value.clone()).collect(),
            removed: state.gone.iter().filter(|(at, _)| *at > from && !full).map(|(_, key)| key.clone()).collect(),
            sections: (state.sections.iter().filter(|(_, kept)| kept.sequence > from))
                .map(|(name, kept)| (*name, kept.value.clone()))
                .collect(),
            throughput: if full { points.to_vec() } else { points.last().copied().into_iter().collect() },
        }
    }

    /// Everything about one operation.
    pub fn detail(&self, key: &str) -> Option<Detail> {
        let state = self.lock();
        let (line, row) = (state.lines.get(key)?, state.rows.get(key)?);
        Some(model::detail(line, row.value.clone(), state.trails.of(key)))
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
        metrics::text(&lines, world, &state.tally, due)
    }

    /// Where a reader is, in words that another process does not mistake for its own.
    pub fn place(&self, sequence: u64) -> String {
        format!("{}-{sequence}", self.boot)
    }

    /// The place in such words.
    pub fn find_place(&self, words: &str) -> Option<u64> {
        words.strip_prefix(&self.boot)?.strip_prefix('-')?.parse().ok()
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
    fn put(&mut self, rows: Vec<Row>) {
        let sequence = self.sequence;
        let mut left: BTreeMap<String, Kept<Row>> = std::mem::take(&mut self.rows);
        for row in rows {
            let kept = match left.remove(&row.key) {
                Some(kept) if kept.value == row => kept,
                _ => Kept { value: row, sequence },
            };
            self.rows.insert(kept.value.key.clone(), kept);
        }
        self.gone.extend(left.into_keys().map(|key| (sequence, key)));
        while self.gone.len() > MOST_GONE {
            self.forgotten = self.gone.pop_front().map_or(self.forgotten, |(at, _)| at);
        }
    }

    fn section(&mut self, name: &'static str, value: Value) {
        let sequence = self.sequence;
        if self.sections.get(name).is_none_or(|kept| kept.value != value) {
            self.sections.insert(name, Kept { value, sequence });
        }
    }

    fn follow(&mut self, lines: &[Line], rows: &[Row], now: Timestamp) {
        let mut total = 0;
        for (line, row) in lines.iter().zip(rows).filter(|(line, _)| !line.told.verdict.is_ended()) {
            total += row.bytes_rate;
            self.trails.add(&row.key, model::point(line, now));
        }
        self.throughput.add(Point { at: now.as_millisecond(), rate: total, ..Point::default() });
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_observe::{Kind, Overview};
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
        board.take(Arc::new(world), lines, never);
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
