use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_operations::WriteBudget;
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn permits_keep_the_interval_and_the_order_and_urgent_ones_go_first() {
    let (writes, order) = (WriteBudget::start(|| INTERVAL), Arc::new(Mutex::new(Vec::new())));
    let begun = Instant::now();
    let write = |name: &'static str, urgent: bool| {
        let (writes, order) = (writes.clone(), Arc::clone(&order));
        async move {
            writes.acquire(urgent).await;
            order.lock().unwrap().push((name, begun.elapsed().as_millis()));
        }
    };
    tokio::join!(write("first", false), write("second", false), write("third", false), write("stalled", true));
    let given = order.lock().unwrap().clone();
    assert_eq!(given.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["stalled", "first", "second", "third"]);
    assert!(given.windows(2).all(|pair| pair[1].1 - pair[0].1 >= 100), "{given:?}");
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_gave_up_costs_no_permit() {
    let writes = WriteBudget::start(|| INTERVAL);
    writes.acquire(false).await;
    for _ in 0..50 {
        let given_up = tokio::time::timeout(Duration::from_millis(1), writes.acquire(false)).await;
        assert!(given_up.is_err());
    }
    let requested = Instant::now();
    writes.acquire(false).await;
    assert!(requested.elapsed() <= INTERVAL, "{:?}", requested.elapsed());
}

/// The first of many that start together must not delay the others by the interval of a single writer.
#[tokio::test(start_paused = true)]
async fn an_interval_that_shrinks_is_waited_for_no_longer_than_it_is() {
    let alone = Arc::new(Mutex::new(true));
    let writes = WriteBudget::start({
        let alone = Arc::clone(&alone);
        move || if *alone.lock().unwrap() { Duration::from_mins(1) } else { INTERVAL }
    });
    writes.acquire(false).await;
    *alone.lock().unwrap() = false;
    let requested = Instant::now();
    writes.acquire(false).await;
    assert!(requested.elapsed() <= INTERVAL * 2, "{:?}", requested.elapsed());
}
