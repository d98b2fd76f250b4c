//! What earlier runs of the same operation say about the next one: medians, without outliers, full and incremental runs apart.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::counts::{Counts, Unit};
use crate::queue::transfer_rate;
use crate::snapshot::{Node, Snapshot, depths, parents};
use crate::state::State;
use crate::tree::Earlier;
use crate::work::{EarlierRate, EarlierRuns};

/// So many runs are kept: with fewer, one slow night would count for much; with more, an old cluster would.
const MAX_RUNS: usize = 10;
/// So many of them are looked at, the latest ones.
const RECENT_RUNS: usize = 5;
/// So many stages of a run are kept.
const MAX_STAGES: usize = 48;
/// So many sizes of volumes are kept.
const MAX_SIZES: usize = 200;
/// A run that took more than this many times the median, or less than this part of it, is an outlier.
const OUTLIER_FACTOR: f64 = 3.0;
/// A run is incremental if it stored less than this share of what it read.
const INCREMENTAL_SHARE: f64 = 0.5;

/// The earlier runs of one operation: the same schedule, or the same selection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct History {
    /// The runs, the latest one last.
    runs: Vec<RunRecord>,
    /// The size of each volume when it was last transferred, by the uid of its claim.
    sizes: BTreeMap<String, u64>,
}

/// What one run showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunRecord {
    /// How long it took, in milliseconds.
    pub milliseconds: u64,
    /// It stored only what had changed.
    pub incremental: bool,
    /// The bytes that its transfers moved.
    pub bytes: u64,
    /// How long its stages took, in milliseconds, by path.
    pub stages: BTreeMap<String, u64>,
    /// How fast the transfers below a stage were, by the path of the stage.
    pub rates: BTreeMap<String, TransferRate>,
}

/// The rate of one transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TransferRate {
    /// Bytes a second; 0 if they moved none.
    pub per_second: f64,
    /// What each transfer takes besides, in milliseconds.
    pub fixed_milliseconds: u64,
}

impl RunRecord {
    /// What a run showed; nothing unless it ended well.
    pub fn of(snapshot: &Snapshot) -> Option<Self> {
        let root = snapshot.root().filter(|root| root.state == State::Done)?;
        let bytes = snapshot.sum(Unit::Bytes).map_or(0, |sum| sum.settled());
        let uploaded = snapshot.sum(Unit::Uploaded).map(|sum| sum.settled());
        let is_small = |uploaded: u64| crate::rate::as_f64(uploaded) < INCREMENTAL_SHARE * crate::rate::as_f64(bytes);
        Some(Self {
            milliseconds: milliseconds(root.ages.elapsed?),
            incremental: uploaded.is_some_and(is_small),
            bytes,
            stages: stages(&snapshot.nodes),
            rates: rates(&snapshot.nodes),
        })
    }
}

/// How long the stages took, and what is directly below them; the longest ones if there are many.
fn stages(nodes: &[Node]) -> BTreeMap<String, u64> {
    let is_stage = |(node, depth): &(&Node, usize)| (1..=2).contains(depth) && node.state == State::Done;
    let took = |(node, _): (&Node, usize)| (milliseconds(node.ages.busy()), node.path.to_string());
    let mut all: Vec<(u64, String)> = nodes.iter().zip(depths(nodes)).filter(is_stage).map(took).collect();
    all.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
    all.truncate(MAX_STAGES);
    all.into_iter().map(|(took, path)| (path, took)).collect()
}

/// The rate of the transfers below each stage that has any.
fn rates(nodes: &[Node]) -> BTreeMap<String, TransferRate> {
    let mut transfers: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (node, parent) in nodes.iter().zip(parents(nodes)) {
        let Some(parent) = parent else { continue };
        if parent > 0 && node.state == State::Done {
            let bytes = node.primary().filter(|counts| counts.unit == Unit::Bytes).map_or(0, Counts::settled);
            let sample = (crate::rate::as_f64(bytes), node.ages.busy().as_secs_f64());
            transfers.entry(nodes[parent].path.to_string()).or_default().push(sample);
        }
    }
    let rate = |(path, samples): (String, Vec<(f64, f64)>)| Some((path, transfer_rate(&samples)?));
    transfers.into_iter().filter_map(rate).collect()
}

fn milliseconds(duration: Duration) -> u64 {
    crate::text::as_millis(duration)
}

impl History {
    /// Adds a run; the oldest one leaves.
    pub fn add(&mut self, run: RunRecord) {
        self.runs.push(run);
        let excess = self.runs.len().saturating_sub(MAX_RUNS);
        self.runs.drain(..excess);
    }

    /// Notes the size of a volume.
    pub fn set_size(&mut self, claim: &str, bytes: u64) {
        self.sizes.insert(claim.to_owned(), bytes);
        while self.sizes.len() > MAX_SIZES {
            self.sizes.pop_first();
        }
    }

    /// The size of a volume when it was last transferred.
    pub fn size(&self, claim: &str) -> Option<u64> {
        self.sizes.get(claim).copied()
    }

    /// What the next run can expect: what the last runs of its sort showed. One that follows an incremental run is incremental.
    pub fn earlier(&self) -> Earlier {
        let incremental = self.runs.last().is_some_and(|run| run.incremental);
        let alike = self.runs.iter().rev().filter(|run| run.incremental == incremental);
        let runs: Vec<&RunRecord> = without_outliers(alike.take(RECENT_RUNS).collect());
        let Some(whole) = median(runs.iter().map(|run| seconds(run.milliseconds))) else { return Earlier::default() };
        let stages: BTreeSet<&String> = runs.iter().flat_map(|run| run.stages.keys()).collect();
        let took = |path: &str| median(runs.iter().filter_map(|run| run.stages.get(path)).map(|took| seconds(*took)));
        let mut durations: HashMap<String, Duration> = stages
            .into_iter()
            .filter_map(|path| Some((path.clone(), Duration::try_from_secs_f64(took(path)?).ok()?)))
            .collect();
        durations.extend(Duration::try_from_secs_f64(whole).ok().map(|whole| (String::new(), whole)));
        Earlier { durations, rates: earlier_rates(&runs), runs: span(&runs) }
    }
}

fn earlier_rates(runs: &[&RunRecord]) -> HashMap<String, EarlierRate> {
    let paths: BTreeSet<&String> = runs.iter().flat_map(|run| run.rates.keys()).collect();
    let rate = |path: &String| {
        let all = || runs.iter().filter_map(|run| run.rates.get(path));
        let per_second = median(all().map(|rate| rate.per_second))?;
        let fixed = median(all().map(|rate| seconds(rate.fixed_milliseconds)))?;
        Some((path.clone(), EarlierRate { per_second, fixed: Duration::try_from_secs_f64(fixed).ok()? }))
    };
    paths.into_iter().filter_map(rate).collect()
}

/// How long the runs took, from the shortest to the longest.
fn span(runs: &[&RunRecord]) -> Option<Arc<EarlierRuns>> {
    let took = || runs.iter().map(|run| run.milliseconds.div_ceil(1000));
    let (low, high) = (took().min()?, took().max()?);
    Some(Arc::new(EarlierRuns { runs: u32::try_from(runs.len()).ok()?, low, high }))
}

/// The runs whose rate is not far from the median one: their duration, by the bytes that they moved.
fn without_outliers(runs: Vec<&RunRecord>) -> Vec<&RunRecord> {
    let slowness = |run: &RunRecord| seconds(run.milliseconds.max(1)) / crate::rate::as_f64(run.bytes.max(1));
    let Some(usual) = median(runs.iter().map(|run| slowness(run))) else { return runs };
    let is_usual = |run: &&RunRecord| (1.0 / OUTLIER_FACTOR..=OUTLIER_FACTOR).contains(&(slowness(run) / usual));
    runs.into_iter().filter(is_usual).collect()
}

fn seconds(milliseconds: u64) -> f64 {
    Duration::from_millis(milliseconds).as_secs_f64()
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (middle, len) = (values.len() / 2, values.len());
    let upper = *values.get(middle)?;
    Some(if len.is_multiple_of(2) { values[middle - 1].midpoint(upper) } else { upper })
}
