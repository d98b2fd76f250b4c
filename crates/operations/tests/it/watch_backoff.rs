use std::time::Duration;

use futures::{StreamExt, stream};
use kube::runtime::utils::{Backoff, StreamBackoff};
use plimsoll_operations::WatchBackoff;
use tokio::time::Instant;

const INITIAL_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(4);

/// As the watches of one controller, which fail one after the other.
#[tokio::test(start_paused = true)]
async fn after_an_outage_of_minutes_the_watches_are_open_again_within_seconds() {
    let back = Instant::now() + Duration::from_mins(5);
    let watch = || stream::repeat_with(move || if Instant::now() < back { Err("away") } else { Ok(()) });
    let mut events = StreamBackoff::new(stream::select(watch(), watch()), WatchBackoff::default()).boxed();
    while events.next().await.unwrap().is_err() {}
    assert!(back.elapsed() <= MAX_PAUSE.mul_f64(1.5), "{:?}", back.elapsed());
}

#[test]
fn pauses_grow_to_a_limit_and_begin_anew_after_a_success() {
    let mut backoff = WatchBackoff::default();
    let pauses: Vec<_> = backoff.by_ref().take(10).collect();
    assert!(pauses[0] < INITIAL_PAUSE * 2 && pauses[9] >= MAX_PAUSE, "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= MAX_PAUSE.mul_f64(1.5)), "{pauses:?}");
    backoff.reset();
    assert!(backoff.next().unwrap() < INITIAL_PAUSE * 2);
}
