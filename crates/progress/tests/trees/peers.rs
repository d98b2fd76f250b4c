//! Estimators of others, given the true total of bytes from the start: linear, a fixed window, restic's, kopia's.

use std::collections::VecDeque;

/// What each says is left, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readings {
    /// By the share that is done, since the start of the operation.
    pub linear: Option<f64>,
    /// By the rate of the last 30 seconds.
    pub window: Option<f64>,
    /// As restic computes it: the rate of at least 20 buckets of a second, 100 MB and two minutes.
    pub restic: Option<f64>,
    /// As kopia computes it: by the share that is done, since the first byte.
    pub kopia: Option<f64>,
}

const WINDOW: f64 = 30.0;
const RESTIC_BUCKETS: usize = 20;
const RESTIC_BYTES: f64 = 100e6;
const RESTIC_SECONDS: f64 = 120.0;

#[derive(Debug, Default)]
pub struct Estimators {
    recent: VecDeque<(f64, f64)>,
    buckets: VecDeque<(f64, f64)>,
    first: Option<(f64, f64)>,
    last: f64,
}

impl Estimators {
    pub fn look(&mut self, at: f64, done: f64, total: f64) -> Readings {
        if done > 0.0 && self.first.is_none() {
            self.first = Some((at, self.last));
        }
        self.recent.push_back((at, done));
        while self.recent.len() > 2 && self.recent[1].0 <= at - WINDOW {
            self.recent.pop_front();
        }
        self.fill_bucket(at, done);
        self.last = done;
        let rest = total - done;
        let by_rate = |bytes: f64, seconds: f64| (bytes > 0.0 && seconds > 0.0).then(|| rest * seconds / bytes);
        let edge = self.recent.front().copied().unwrap_or_default();
        let moved: f64 = self.buckets.iter().map(|(_, bytes)| bytes).sum();
        Readings {
            linear: by_rate(done, at),
            window: by_rate(done - edge.1, at - edge.0),
            restic: self.buckets.front().and_then(|(from, _)| by_rate(moved, at - from)),
            kopia: self.first.and_then(|(from, _)| by_rate(done, at - from)),
        }
    }

    fn fill_bucket(&mut self, at: f64, done: f64) {
        let moved = done - self.last;
        match self.buckets.back_mut() {
            Some(bucket) if at - bucket.0 < 1.0 => bucket.1 += moved,
            None if moved <= 0.0 => return,
            _ => self.buckets.push_back((at, moved)),
        }
        let mut all: f64 = self.buckets.iter().map(|(_, bytes)| bytes).sum();
        while let Some((from, bytes)) = self.buckets.front().copied() {
            let enough = all - bytes >= RESTIC_BYTES && self.buckets.len() > RESTIC_BUCKETS;
            if !enough || at - from <= RESTIC_SECONDS {
                break;
            }
            all -= bytes;
            self.buckets.pop_front();
        }
    }
}
