//! From the cluster to the board, while anybody looks.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_observe::{Gatherer, Live, Overview, World};
use plimsoll_progress::Trees;
use tokio::time::Instant;

use crate::board::Board;
use crate::volumes::volumes;

/// What is in this process's own memory is looked at this often, unless looking takes long.
const EVERY: Duration = Duration::from_millis(250);
/// So much longer than a look the pause after it is: looking costs at most a fifth of a core.
const REST: u32 = 4;
/// How often trees are looked at while nobody else looks.
pub const SAMPLE_EVERY: Duration = Duration::from_secs(5);

/// The first time after a moment at which a cron expression is due.
pub type Due = fn(&str, Timestamp) -> Option<Timestamp>;

/// What is in the memory of processes that work, by uid.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The trees of operations: this process's own.
    pub trees: Trees,
    /// The trees of single volumes: copies of the agents'.
    pub transfers: Trees,
}

/// Feeds a board until the end of the process.
pub async fn feed(gatherer: Gatherer, memory: Memory, board: Arc<Board>, due: Due) {
    loop {
        board.wanted().await;
        watch(&gatherer, &memory, &board, due).await;
    }
}

/// Gives charts a past, until the end of the process. The cluster is not asked for that.
pub async fn sample(trees: Trees, board: Arc<Board>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        // Whoever looks on notes more, and oftener.
        if !board.is_wanted() {
            let (trees, board) = (trees.clone(), Arc::clone(&board));
            let _ = tokio::task::spawn_blocking(move || board.sample(&trees, Timestamp::now())).await;
        }
    }
}

async fn watch(gatherer: &Gatherer, memory: &Memory, board: &Arc<Board>, due: Due) {
    let mut live = Live::start(gatherer);
    let mut overview = Overview::with(memory.trees.clone()).and_transfers(memory.transfers.clone());
    let Some(mut world) = live.next().await else { return };
    let mut came = Instant::now();
    while board.is_wanted() {
        let begun = Instant::now();
        let look = { (Arc::clone(board), aged(&world, came.elapsed())) };
        // Off the threads that serve: with a thousand operations it takes a while.
        let looked = tokio::task::spawn_blocking(move || {
            let (board, world) = look;
            let lines = overview.look(&world);
            let volumes = volumes(&mut overview, &world);
            board.take(world, lines, volumes, due);
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
            () = tokio::time::sleep(EVERY.max(took * REST)), if !memory.is_empty() => {}
        }
    }
}

impl Memory {
    fn is_empty(&self) -> bool {
        self.trees.is_empty() && self.transfers.is_empty()
    }
}

/// The world with the time gone by since it came.
fn aged(world: &Arc<World>, by: Duration) -> Arc<World> {
    if by < Duration::from_millis(100) { Arc::clone(world) } else { Arc::new(world.aged(by)) }
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Clock, Operation};

    use super::*;

    #[tokio::test]
    async fn trees_are_noted_again_and_again_while_nobody_looks() {
        let (board, trees) = (Board::new(), Trees::default());
        let operation = Operation::new("backup-a", Clock::system());
        let observer = operation.observer();
        let _shown = trees.show("uid", move || Some(observer.snapshot()));
        let sampling = tokio::spawn(sample(trees, Arc::clone(&board), Duration::from_millis(50)));
        let grown = async {
            while board.points_of("uid") < 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), grown).await.expect("three points");
        assert!(!board.is_wanted(), "nobody asked");
        sampling.abort();
    }
}
