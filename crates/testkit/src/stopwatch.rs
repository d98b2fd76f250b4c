//! Measures elapsed time without the time in which the machine was overloaded.

use std::fs;
use std::time::{Duration, Instant};

/// Counts the time in which no process waited for a CPU or a disk.
///
/// Used for limits such as \"ends within five seconds\". Time in which processes waited for a resource, according to the
/// pressure stall information of the kernel (`/proc/pressure`), does not count.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    begun: Instant,
    pressure: Duration,
}

impl Stopwatch {
    /// Starts it.
    pub fn start() -> Self {
        Self { begun: Instant::now(), pressure: pressure() }
    }

    /// The elapsed time.
    pub fn elapsed(self) -> Duration {
        let waited = pressure().saturating_sub(self.pressure);
        self.begun.elapsed().saturating_sub(waited)
    }
}

/// How long processes have waited since boot, for a CPU or for a disk, whichever was longer. Zero if the kernel does not
/// report it.
fn pressure() -> Duration {
    let of = |resource: &str| fs::read_to_string(format!("/proc/pressure/{resource}")).ok().as_deref().and_then(some);
    ["cpu", "io"].iter().filter_map(|resource| of(resource)).max().unwrap_or_default()
}

/// The time in which at least one process waited.
fn some(text: &str) -> Option<Duration> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_count_is_read() {
        let text = "some avg10=11.80 avg60=11.21 avg300=10.54 total=277712213\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(some(text), Some(Duration::from_micros(277_712_213)));
        assert_eq!(some("nothing of the kind"), None);
    }

    #[test]
    fn no_more_is_shown_than_has_passed() {
        let (watch, begun) = (Stopwatch::start(), Instant::now());
        std::thread::yield_now();
        assert!(watch.elapsed() <= begun.elapsed() + Duration::from_millis(1));
    }
}
