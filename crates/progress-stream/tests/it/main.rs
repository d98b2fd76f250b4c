//! Trees on their way between processes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod agents;
mod leader;

use std::time::Duration;

use plimsoll_progress::{Clock, Meter, Operation, Total, TreeRegistration, Trees, Unit};

/// A transfer of 100 bytes whose tree is registered under `uid`.
struct Transfer {
    operation: Operation,
    bytes: Meter,
}

impl Transfer {
    fn new() -> Self {
        let operation = Operation::new("transfer", Clock::system());
        let bytes = operation.root().meter(Unit::Bytes);
        bytes.set_total(Total::Final(100));
        Self { operation, bytes }
    }

    fn register(&self, trees: &Trees) -> TreeRegistration {
        let observer = self.operation.observer();
        trees.register("uid", move || Some(observer.snapshot()))
    }
}

/// The bytes of the replica.
fn bytes_done(replicas: &Trees) -> Option<u64> {
    Some(replicas.snapshot("uid")?.root()?.counts(Unit::Bytes)?.done)
}

/// Waits for a condition.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1200 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never happened: {what}");
}
