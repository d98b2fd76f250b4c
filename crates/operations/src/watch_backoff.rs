//! How soon a watch that failed is opened again.
//!
//! The pauses of kube's own policy grow to between 30 s and a minute, and all watches of a controller share them: after an outage
//! of the API server, new work could go unseen for two minutes. Ours stay short. One watch is one request, so that costs a
//! recovering API server little.

use std::time::Duration;

use kube::runtime::utils::Backoff;

const INITIAL_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(4);

/// Pauses that double up to `MAX_PAUSE`, each with up to a half of it more: the watches of many processes come apart.
#[derive(Clone, Debug)]
pub struct WatchBackoff {
    next: Duration,
}

impl Default for WatchBackoff {
    fn default() -> Self {
        Self { next: INITIAL_PAUSE }
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    /// Always another pause: a watch is never given up.
    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.next = (pause * 2).min(MAX_PAUSE);
        Some(pause.mul_f64(rand::random_range(1.0..1.5)))
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use kube::runtime::utils::StreamBackoff;
    use tokio::time::Instant;

    use super::*;

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
}
