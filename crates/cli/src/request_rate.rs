//! `--client-qps` and `--client-burst`: the rate of requests to the API server.
//!
//! Requests wait in the order in which they come. Those for a Lease do not wait: a leader that cannot renew its Lease in time ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, service_fn};

/// A client that sends so many requests in a second, after a burst. A rate of zero is no limit.
pub fn with_request_rate(client: Client, rate: f64, burst: u32) -> Client {
    if rate <= 0.0 {
        return client;
    }
    let namespace = client.default_namespace().to_owned();
    let schedule = Arc::new(Mutex::new(Schedule::new(rate, burst)));
    let service = service_fn(move |request: Request<Body>| {
        let (client, schedule) = (client.clone(), Arc::clone(&schedule));
        async move {
            if !is_for_lease(&request) {
                let start = schedule.lock().unwrap_or_else(PoisonError::into_inner).reserve(Instant::now());
                tokio::time::sleep_until(start).await;
            }
            client.send(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, namespace)
}

fn is_for_lease(request: &Request<Body>) -> bool {
    request.uri().path().starts_with("/apis/coordination.k8s.io/")
}

/// When the next request may start.
struct Schedule {
    interval: Duration,
    /// How far requests may be ahead of the rate.
    ahead: Duration,
    /// When a request would start at the rate, without bursts.
    next: Option<Instant>,
}

impl Schedule {
    fn new(rate: f64, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::from_secs(1));
        Self { interval, ahead: interval.saturating_mul(burst.saturating_sub(1)), next: None }
    }

    fn reserve(&mut self, now: Instant) -> Instant {
        let due = self.next.map_or(now, |next| next.max(now));
        self.next = Some(due + self.interval);
        due.checked_sub(self.ahead).map_or(now, |start| start.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_starts_at_once_and_the_rest_at_the_rate() {
        let mut schedule = Schedule::new(10.0, 3);
        let begun = Instant::now() + Duration::from_mins(1);
        let waits: Vec<_> = (0..5).map(|_| (schedule.reserve(begun) - begun).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        let later = begun + Duration::from_secs(9);
        let waits: Vec<_> = (0..4).map(|_| (schedule.reserve(later) - later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100], "an idle time gives one burst, not more");
    }

    #[test]
    fn the_renewal_of_a_lease_does_not_wait() {
        let request = |path: &str| Request::get(path).body(Body::empty()).unwrap();
        assert!(is_for_lease(&request("/apis/coordination.k8s.io/v1/namespaces/velero/leases/plimsoll")));
        assert!(!is_for_lease(&request("/api/v1/namespaces/velero/pods")));
    }
}
