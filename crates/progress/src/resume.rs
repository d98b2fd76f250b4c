//! Rebuilds a tree from a saved snapshot: its counts become floors.

use std::sync::Arc;

use crate::clock::Clock;
use crate::meter::MeterCell;
use crate::snapshot::{Node, Snapshot};
use crate::state::State;
use crate::task_cell::{Cell, TaskFields};
use crate::text::clean;
use crate::tree::Tree;
use crate::work::Work;

/// The reason of a task that was running in a process that is gone.
pub(crate) fn taken_over_from(who: &str) -> Arc<str> {
    clean(&format!("taken over from {who}"))
}

/// The saved tree in its saved state, without any worker.
pub(crate) fn tree(saved: &Snapshot, who: &str, clock: Clock) -> (Arc<Tree>, Arc<Cell>) {
    let (tree, root) = Tree::new(&saved.operation, clock, State::Running);
    for node in &saved.nodes {
        put_back(&tree, &root, node, who);
    }
    tree.keep_saved(saved);
    (tree, root)
}

fn put_back(tree: &Tree, root: &Arc<Cell>, node: &Node, who: &str) {
    let live = saved_live(tree, node, who);
    let cell = match node.parent_path() {
        None => {
            // The root runs again at once: the process that resumes the operation holds it.
            let mut now_live = root.live();
            now_live.meters = live.meters;
            now_live.started = live.started;
            now_live.work = live.work;
            drop(now_live);
            Some(Arc::clone(root))
        }
        Some(parent) => tree.put_back(parent, &node.name, live),
    };
    if let Some(cell) = cell {
        tree.with_sampler(|sampler| sampler.set_floor(cell.index, node));
    }
}

fn saved_live(tree: &Tree, node: &Node, who: &str) -> TaskFields {
    let now = tree.now();
    let ended = node.state.is_ended();
    let elapsed = node.ages.elapsed.unwrap_or_default();
    let began = |elapsed| now.saturating_sub(elapsed);
    TaskFields {
        state: if node.state.is_active() { State::TakenOver } else { node.state },
        reason: if node.state.is_active() { Some(taken_over_from(who)) } else { node.reason.clone() },
        item: node.item.clone(),
        hint: node.hint.clone(),
        // A saved total is an estimate until the work is planned again.
        meters: node
            .meters
            .iter()
            .map(|counts| Arc::new(MeterCell::new(counts.unit, counts.total.reopened())))
            .collect(),
        frozen: ended.then(|| node.meters.clone()),
        started: node.ages.elapsed.map(began),
        ended: ended.then(|| began(elapsed) + elapsed),
        signalled: now,
        queued: node.ages.queued,
        signals: node.signals,
        work: node.expected.map(Work::fixed),
        runs_on: node.runs_on.clone(),
        quiet: node.quiet,
        orphaned: true,
        ..TaskFields::default()
    }
}
