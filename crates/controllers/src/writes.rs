//! Writes of progress, one after the other: all that a process has to show shares one budget.
//!
//! ```text
//!   who has something urgent ──┐
//!                              ├──▶ one turn after the other, each at its distance ──▶ reads its tree, and writes
//!   who has something to show ─┘
//! ```
//! Whoever gets its turn looks at its tree only then: what is written is never older than the write. Turns are given in the order
//! in which they were asked for, so nobody waits for another one twice.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// A turn that came this much too late does not delay the one after it.
const LATE: Duration = Duration::from_millis(50);

/// Gives turns. Cheap to clone; ends with its last clone.
#[derive(Clone, Debug)]
pub struct Writes {
    urgent: mpsc::UnboundedSender<Asked>,
    usual: mpsc::UnboundedSender<Asked>,
}

#[derive(Debug)]
struct Asked {
    turn: oneshot::Sender<()>,
    /// How long after this one the next may follow.
    distance: Duration,
}

impl Writes {
    /// Begins to give turns. Needs a Tokio runtime.
    pub fn start() -> Self {
        let ((urgent, first), (usual, second)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        tokio::spawn(give(first, second));
        Self { urgent, usual }
    }

    /// Waits for a turn; the next one comes `distance` later. What is urgent goes before everything that is not.
    pub async fn turn(&self, urgent: bool, distance: Duration) {
        let (turn, given) = oneshot::channel();
        let lane = if urgent { &self.urgent } else { &self.usual };
        // Nobody to ask means that the runtime ends: nothing is left to be paced.
        if lane.send(Asked { turn, distance }).is_ok() {
            let _ = given.await;
        }
    }
}

async fn give(mut urgent: mpsc::UnboundedReceiver<Asked>, mut usual: mpsc::UnboundedReceiver<Asked>) {
    let mut next = Instant::now();
    loop {
        let asked = tokio::select! {
            biased;
            Some(asked) = urgent.recv() => asked,
            Some(asked) = usual.recv() => asked,
            else => return,
        };
        // Who has gone in the meantime costs no turn.
        if asked.turn.send(()).is_ok() {
            // A clock that only knows milliseconds must not slow the whole down: distances add up from turn to turn.
            let late = asked.distance.min(LATE);
            next = next.max(Instant::now().checked_sub(late).unwrap_or(next)) + asked.distance;
            tokio::time::sleep_until(next).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const DISTANCE: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn turns_keep_their_distance_go_in_order_and_what_is_urgent_goes_first() {
        let (writes, order) = (Writes::start(), Arc::new(Mutex::new(Vec::new())));
        let begun = Instant::now();
        let ask = |name: &'static str, urgent: bool| {
            let (writes, order) = (writes.clone(), Arc::clone(&order));
            async move {
                writes.turn(urgent, DISTANCE).await;
                order.lock().unwrap().push((name, begun.elapsed().as_millis()));
            }
        };
        tokio::join!(ask("first", false), ask("second", false), ask("third", false), ask("stalled", true));
        let given = order.lock().unwrap().clone();
        assert_eq!(given.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["stalled", "first", "second", "third"]);
        assert!(given.windows(2).all(|pair| pair[1].1 - pair[0].1 >= 100), "{given:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_gave_up_costs_no_turn() {
        let writes = Writes::start();
        writes.turn(false, DISTANCE).await;
        for _ in 0..50 {
            let given_up = tokio::time::timeout(Duration::from_millis(1), writes.turn(false, DISTANCE)).await;
            assert!(given_up.is_err());
        }
        let asked = Instant::now();
        writes.turn(false, DISTANCE).await;
        assert!(asked.elapsed() <= DISTANCE, "{:?}", asked.elapsed());
    }
}
