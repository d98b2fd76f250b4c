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
/// How often the distance is asked for while it is waited for: many who begin at the same moment share the budget from then on.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Gives turns. Cheap to clone; ends with its last clone.
#[derive(Clone, Debug)]
pub struct Writes {
    urgent: mpsc::UnboundedSender<oneshot::Sender<()>>,
    usual: mpsc::UnboundedSender<oneshot::Sender<()>>,
}

impl Writes {
    /// Begins to give turns, each so long after the one before it as `distance` says by then. Needs a Tokio runtime.
    pub fn start(distance: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let ((urgent, first), (usual, second)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        tokio::spawn(give(first, second, distance));
        Self { urgent, usual }
    }

    /// Waits for a turn. What is urgent goes before everything that is not.
    pub async fn turn(&self, urgent: bool) {
        let (turn, given) = oneshot::channel();
        let lane = if urgent { &self.urgent } else { &self.usual };
        // Nobody to ask means that the runtime ends: nothing is left to be paced.
        if lane.send(turn).is_ok() {
            let _ = given.await;
        }
    }
}

async fn give(
    mut urgent: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    mut usual: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    distance: impl Fn() -> Duration,
) {
    let mut next = Instant::now();
    loop {
        let turn = tokio::select! {
            biased;
            Some(turn) = urgent.recv() => turn,
            Some(turn) = usual.recv() => turn,
            else => return,
        };
        // Who has gone in the meantime costs no turn.
        if turn.send(()).is_ok() {
            // A clock that only knows milliseconds must not slow the whole down: distances add up from turn to turn.
            let late = distance().min(LATE);
            next = wait(next.max(Instant::now().checked_sub(late).unwrap_or(next)), &distance).await;
        }
    }
}

/// Waits until the distance has passed, as long as that is by then; when that was.
async fn wait(from: Instant, distance: &impl Fn() -> Duration) -> Instant {
    loop {
        let (due, now) = (from + distance(), Instant::now());
        if due <= now {
            return due;
        }
        tokio::time::sleep_until(due.min(now + LOOK_EVERY)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const DISTANCE: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn turns_keep_their_distance_go_in_order_and_what_is_urgent_goes_first() {
        let (writes, order) = (Writes::start(|| DISTANCE), Arc::new(Mutex::new(Vec::new())));
        let begun = Instant::now();
        let ask = |name: &'static str, urgent: bool| {
            let (writes, order) = (writes.clone(), Arc::clone(&order));
            async move {
                writes.turn(urgent).await;
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
        let writes = Writes::start(|| DISTANCE);
        writes.turn(false).await;
        for _ in 0..50 {
            let given_up = tokio::time::timeout(Duration::from_millis(1), writes.turn(false)).await;
            assert!(given_up.is_err());
        }
        let asked = Instant::now();
        writes.turn(false).await;
        assert!(asked.elapsed() <= DISTANCE, "{:?}", asked.elapsed());
    }

    /// The first of many who begin together must not keep the others waiting for as long as one alone may be kept.
    #[tokio::test(start_paused = true)]
    async fn a_distance_that_shrinks_is_waited_for_no_longer_than_it_is() {
        let alone = Arc::new(Mutex::new(true));
        let writes = Writes::start({
            let alone = Arc::clone(&alone);
            move || if *alone.lock().unwrap() { Duration::from_mins(1) } else { DISTANCE }
        });
        writes.turn(false).await;
        *alone.lock().unwrap() = false;
        let asked = Instant::now();
        writes.turn(false).await;
        assert!(asked.elapsed() <= DISTANCE + LOOK_EVERY, "{:?}", asked.elapsed());
    }
}
