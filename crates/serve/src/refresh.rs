//! Refreshes the dashboard from the cluster while it has readers.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_observe::{ClusterReader, ClusterState, ClusterWatch, Overview};
use plimsoll_progress::Trees;
use tokio::time::Instant;

use crate::dashboard_state::DashboardState;
use crate::volumes::volumes;

/// How often the trees in memory are read, unless a refresh takes long.
const REFRESH_INTERVAL: Duration = Duration::from_millis(250);
/// The pause after a refresh is this many times its duration: refreshing costs at most a fifth of a core.
const PAUSE_FACTOR: u32 = 4;
/// How often trees are sampled for charts while there is no reader.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

/// The first time after a moment at which a cron expression runs.
pub type NextRun = fn(&str, Timestamp) -> Option<Timestamp>;

/// Trees in memory, by uid.
#[derive(Clone, Debug, Default)]
pub struct MemoryTrees {
    /// The trees of this process's operations.
    pub trees: Trees,
    /// Replicas of the agents' trees of volume transfers.
    pub transfers: Trees,
}

/// Refreshes the dashboard for as long as the process runs.
pub async fn refresh(reader: ClusterReader, memory: MemoryTrees, dashboard: Arc<DashboardState>, next_run: NextRun) {
    loop {
        dashboard.wait_until_watched().await;
        watch(&reader, &memory, &dashboard, next_run).await;
    }
}

/// Records samples for charts for as long as the process runs, without a request to the cluster.
pub async fn record_samples(trees: Trees, dashboard: Arc<DashboardState>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        // With a reader every refresh records samples.
        if !dashboard.is_watched() {
            let (trees, dashboard) = (trees.clone(), Arc::clone(&dashboard));
            let _ = tokio::task::spawn_blocking(move || dashboard.record_sample(&trees, Timestamp::now())).await;
        }
    }
}

async fn watch(reader: &ClusterReader, memory: &MemoryTrees, dashboard: &Arc<DashboardState>, next_run: NextRun) {
    let mut watch = ClusterWatch::start(reader);
    let mut overview = Overview::with_trees(memory.trees.clone()).with_transfer_trees(memory.transfers.clone());
    let Some(mut cluster) = watch.next().await else { return };
    let mut received = Instant::now();
    while dashboard.is_watched() {
        let begun = Instant::now();
        let (state, current) = (Arc::clone(dashboard), aged(&cluster, received.elapsed()));
        // Off the threads that serve: it takes a while with a thousand operations.
        let refreshed = tokio::task::spawn_blocking(move || {
            let lines = overview.list_operations(&current);
            let volumes = volumes(&mut overview, &current);
            state.update(current, lines, volumes, next_run);
            overview
        });
        let Ok(returned) = refreshed.await else { return };
        overview = returned;
        let took = begun.elapsed();
        tokio::select! {
            next = watch.next() => {
                let Some(next) = next else { return };
                (cluster, received) = (next, Instant::now());
            }
            () = tokio::time::sleep(REFRESH_INTERVAL.max(took * PAUSE_FACTOR)), if !memory.is_empty() => {}
        }
    }
}

impl MemoryTrees {
    fn is_empty(&self) -> bool {
        self.trees.is_empty() && self.transfers.is_empty()
    }
}

/// The same state, with the time that has passed since it was received.
fn aged(cluster: &Arc<ClusterState>, by: Duration) -> Arc<ClusterState> {
    if by < Duration::from_millis(100) { Arc::clone(cluster) } else { Arc::new(cluster.advanced_by(by)) }
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Clock, Operation};

    use super::*;

    #[tokio::test]
    async fn trees_are_sampled_while_there_is_no_reader() {
        let (dashboard, trees) = (DashboardState::new(), Trees::default());
        let operation = Operation::new("backup-a", Clock::system());
        let observer = operation.observer();
        let _registration = trees.register("uid", move || Some(observer.snapshot()));
        let sampling = tokio::spawn(record_samples(trees, Arc::clone(&dashboard), Duration::from_millis(50)));
        let grown = async {
            while dashboard.count_samples("uid") < 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), grown).await.expect("three samples");
        assert!(!dashboard.is_watched(), "there was no request");
        sampling.abort();
    }
}
