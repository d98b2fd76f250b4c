//! A tree that is small enough to store: the rest is folded into counts.

use crate::counts::Unit;
use crate::snapshot::{Node, Snapshot, Whole, add, depths, gather, parents};
use crate::state::State;

/// How large a tree may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many nodes. The root always stays.
    pub nodes: usize,
    /// How many bytes of JSON, as a frame.
    pub bytes: usize,
}

/// What a frame has around its nodes, with some room to spare.
const ENVELOPE: usize = 256;

impl Limits {
    /// What is stored while an operation runs.
    pub const STORED: Self = Self { nodes: 200, bytes: 64 << 10 };
    /// What stays of one that has ended.
    pub const ENDED: Self = Self { nodes: 64, bytes: 4 << 10 };
}

/// The tree within limits: first what is stalled, at work, waiting or failed, with everything above it; then what is
/// planned; then what is done. What is left out is counted in the nearest node that stays.
pub fn truncate(snapshot: &Snapshot, limits: Limits) -> Snapshot {
    let parents = parents(&snapshot.nodes);
    let order = by_importance(&snapshot.nodes);
    let mut budget = limits.bytes.saturating_sub(ENVELOPE + snapshot.operation.len());
    loop {
        let kept = choose(&snapshot.nodes, &parents, &order, limits.nodes, budget);
        let smaller = fold(snapshot, &parents, &kept);
        // The counts of what was left out take room as well: then a little less may stay.
        let excess = size_of(&smaller.nodes).saturating_sub(limits.bytes.saturating_sub(ENVELOPE));
        if excess == 0 {
            return smaller;
        }
        if smaller.nodes.len() <= 1 {
            return without_texts(smaller);
        }
        budget = budget.saturating_sub(excess.max(64));
    }
}

/// What stays of an ended operation: what failed, its stages and as much of what is below them as there is room for, with all
/// numbers.
pub fn ended(snapshot: &Snapshot) -> Snapshot {
    let mut ended = snapshot.clone();
    for node in &mut ended.nodes {
        node.item = None;
        node.hint = node.hint.take().filter(|_| node.state.is_bad());
    }
    truncate(&ended, Limits::ENDED)
}

fn importance(node: &Node) -> u8 {
    match node.state {
        _ if node.stall.is_some() => 0,
        State::Running | State::Waiting | State::TakenOver => 1,
        State::Failed | State::Cancelled | State::Interrupted => 2,
        State::Pending | State::Unknown => 3,
        State::Done | State::Skipped => 4,
    }
}

fn by_importance(nodes: &[Node]) -> Vec<usize> {
    let depths = depths(nodes);
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|index| (importance(&nodes[*index]), depths[*index], *index));
    order
}

/// Which nodes stay: the most important ones that fit, each with all that is above it.
fn choose(nodes: &[Node], parents: &[Option<usize>], order: &[usize], most: usize, bytes: usize) -> Vec<bool> {
    let mut kept = vec![false; nodes.len()];
    let (mut count, mut size) = (0, 0);
    if let Some(root) = kept.first_mut() {
        *root = true;
        (count, size) = (1, size_of(&nodes[..1]));
    }
    for index in order {
        if count >= most {
            break;
        }
        let line = missing_line(*index, parents, &kept);
        let line_size: usize = line.iter().map(|index| size_of(&nodes[*index..=*index])).sum();
        if count + line.len() <= most && size + line_size <= bytes {
            count += line.len();
            size += line_size;
            for index in line {
                kept[index] = true;
            }
        }
    }
    kept
}

/// A node and what is above it, as far as that is not kept yet.
fn missing_line(index: usize, parents: &[Option<usize>], kept: &[bool]) -> Vec<usize> {
    std::iter::successors(Some(index), |index| parents[*index]).take_while(|index| !kept[*index]).collect()
}

fn size_of(nodes: &[Node]) -> usize {
    // A node is plain data and always has a JSON form; if it had none, it would have to be left out.
    nodes.iter().map(|node| serde_json::to_vec(node).map_or(usize::MAX >> 8, |json| json.len() + 1)).sum()
}

/// The kept nodes, with the others counted in the nearest kept one above them.
fn fold(snapshot: &Snapshot, parents: &[Option<usize>], kept: &[bool]) -> Snapshot {
    let mut nodes: Vec<Option<Node>> =
        snapshot.nodes.iter().zip(kept).map(|(node, kept)| kept.then(|| node.clone())).collect();
    for (index, node) in snapshot.nodes.iter().enumerate().filter(|(index, _)| !kept[*index]) {
        let above = std::iter::successors(parents[index], |above| parents[*above]).find(|above| kept[*above]);
        if let Some(above) = above.and_then(|above| nodes[above].as_mut()) {
            above.folded.add(node.state);
            above.folded.merge(&node.folded);
        }
    }
    for unit in Unit::ALL {
        fold_meters(snapshot, &mut nodes, parents, kept, unit);
    }
    let nodes: Vec<Node> = nodes.into_iter().flatten().collect();
    // What is not shown counts all the same.
    let speaks = || Box::new(Whole { speed: snapshot.speed(), explanation: snapshot.explanation() });
    let whole = if nodes.len() < snapshot.nodes.len() { Some(speaks()) } else { snapshot.whole.clone() };
    Snapshot { nodes, whole, ..snapshot.without_nodes() }
}

/// Adds what the nodes that are left out have counted to the nearest node that stays.
fn fold_meters(snapshot: &Snapshot, nodes: &mut [Option<Node>], parents: &[Option<usize>], kept: &[bool], unit: Unit) {
    let sums = gather(&snapshot.nodes, unit);
    for (index, counts) in sums.iter().enumerate().filter(|(index, _)| !kept[*index]) {
        let above = parents[index].and_then(|above| nodes[above].as_mut());
        let (Some(counts), Some(above)) = (counts, above.filter(|above| above.counts(unit).is_none())) else {
            continue;
        };
        match above.folded_meters.iter_mut().find(|folded| folded.unit == unit) {
            Some(folded) => *folded = add(*folded, counts),
            None => above.folded_meters.push(*counts),
        }
    }
}

/// The last resort for a root that is too large by itself.
fn without_texts(mut snapshot: Snapshot) -> Snapshot {
    for node in &mut snapshot.nodes {
        (node.item, node.hint) = (None, None);
    }
    snapshot
}
