//! From the cluster to the board, while anybody looks.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_observe::{Gatherer, Live, Overview, World};
use plimsoll_progress::Trees;
use tokio::time::Instant;

use crate::board::Board;

/// What is in this process's own memory is looked at this often, unless looking takes long.
const EVERY: Duration = Duration::from_millis(250);
/// So much longer than a look the pause after it is: looking costs at most a fifth of a core.
const REST: u32 = 4;

/// The first time after a moment at which a cron expression is due.
pub type Due = fn(&str, Timestamp) -> Option<Timestamp>;

/// Feeds a board until the end of the process.
pub async fn feed(gatherer: Gatherer, trees: Trees, board: Arc<Board>, due: Due) {
    loop {
        board.wanted().await;
        watch(&gatherer, &trees, &board, due).await;
    }
}

async fn watch(gatherer: &Gatherer, trees: &Trees, board: &Arc<Board>, due: Due) {
    let mut live = Live::start(gatherer);
    let mut overview = Overview::with(trees.clone());
    let Some(mut world) = live.next().await else { return };
    let mut came = Instant::now();
    while board.is_wanted() {
        let begun = Instant::now();
        let look = { (Arc::clone(board), aged(&world, came.elapsed())) };
        // Off the threads that serve: with a thousand operations it takes a while.
        let looked = tokio::task::spawn_blocking(move || {
            let (board, world) = look;
            let lines = overview.look(&world);
            board.take(world, lines, due);
            overview
        });
        let Ok(returned) = looked.await else { return };
        overview = returned;
        let took = begun.elapsed();
        tokio::select! {
            next = live.next() => {
                let Some(next) = next else { return };
                (world, came) = (next, Instant::now());
            }
            () = tokio::time::sleep(EVERY.max(took * REST)), if !trees.is_empty() => {}
        }
    }
}

/// The world with the time gone by since it came.
fn aged(world: &Arc<World>, by: Duration) -> Arc<World> {
    if by < Duration::from_millis(100) { Arc::clone(world) } else { Arc::new(world.aged(by)) }
}
