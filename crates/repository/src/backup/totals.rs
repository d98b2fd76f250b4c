//! The totals of a backup, as found by the scan and the walk.

use std::sync::{Mutex, PoisonError};

use plimsoll_progress::{Meter, Total};

use super::run::Meters;

/// Files and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub files: u64,
    pub bytes: u64,
}

impl Amount {
    pub(super) fn add(&mut self, more: Self) {
        self.files += more.files;
        self.bytes += more.bytes;
    }
}

/// The totals found so far. The scan is ahead of the walk if the walk waits for the workers; otherwise the walk may be ahead.
pub(super) struct DiscoveredTotals {
    totals: Mutex<ScanAndWalk>,
    /// Whether growing totals are reported. Not with a parent snapshot: unchanged files are done when the walk finds them, so nearly
    /// all of a growing total would be done all the time.
    shows_growth: bool,
}

#[derive(Default)]
struct ScanAndWalk {
    scanned: Amount,
    walked: Amount,
}

impl ScanAndWalk {
    fn max(&self) -> Amount {
        let (scanned, walked) = (self.scanned, self.walked);
        Amount { files: scanned.files.max(walked.files), bytes: scanned.bytes.max(walked.bytes) }
    }
}

impl DiscoveredTotals {
    pub(super) fn new(shows_growth: bool) -> Self {
        Self { totals: Mutex::default(), shows_growth }
    }
}

impl Meters {
    /// Adds to the total of the scan.
    pub(super) fn scanned(&self, more: Amount) {
        self.update(|totals| totals.scanned.add(more));
    }

    /// Adds to the total of the walk. To be called before any of it counts as done, so that done never exceeds the total.
    pub(super) fn walked(&self, more: Amount) {
        self.update(|totals| totals.walked.add(more));
    }

    /// The scan is complete.
    pub(super) fn all_scanned(&self) {
        self.finish(ScanAndWalk::max);
    }

    /// The walk is complete. Its total replaces that of the scan: files that it did not find were removed.
    pub(super) fn all_walked(&self) {
        self.finish(|totals| totals.walked);
    }

    fn finish(&self, final_total: impl FnOnce(&ScanAndWalk) -> Amount) {
        let totals = self.totals.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let total = final_total(&totals);
        self.files.set_total(Total::Final(total.files));
        self.bytes.set_total(Total::Final(total.bytes));
    }

    /// Updates the totals with the mutex held, so that they never decrease.
    fn update(&self, change: impl FnOnce(&mut ScanAndWalk)) {
        let mut totals = self.totals.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let before = totals.max();
        change(&mut totals);
        if !self.totals.shows_growth {
            return;
        }
        let now = totals.max();
        let raise = |meter: &Meter, before, now| {
            if now > before || meter.counts().total == Total::Unknown {
                meter.set_total(Total::Growing(now));
            }
        };
        raise(&self.files, before.files, now.files);
        raise(&self.bytes, before.bytes, now.bytes);
    }
}
