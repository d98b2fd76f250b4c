//! How much there is to do, as far as anybody has found it.

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

/// What was found so far. Where reading holds up the walk the scan should be ahead of it; else the walk has found more.
pub(super) struct Found {
    both: Mutex<Both>,
    /// Whether the totals are shown while they grow. Not where most is unchanged: the walk finds that and has done with it, and nearly
    /// all of what was found would be done, long before the rest is found.
    shows_growth: bool,
}

#[derive(Default)]
struct Both {
    scanned: Amount,
    walked: Amount,
}

impl Both {
    fn most(&self) -> Amount {
        let (scanned, walked) = (self.scanned, self.walked);
        Amount { files: scanned.files.max(walked.files), bytes: scanned.bytes.max(walked.bytes) }
    }
}

impl Found {
    pub(super) fn new(shows_growth: bool) -> Self {
        Self { both: Mutex::default(), shows_growth }
    }
}

impl Meters {
    /// The scan has found this much more.
    pub(super) fn scanned(&self, more: Amount) {
        self.find(|both| both.scanned.add(more));
    }

    /// The walk has found this much more. To be said before any of it counts as done: so nothing is ever done that is not in
    /// the total.
    pub(super) fn walked(&self, more: Amount) {
        self.find(|both| both.walked.add(more));
    }

    /// The scan has found everything.
    pub(super) fn all_scanned(&self) {
        self.finish(Both::most);
    }

    /// The walk has found everything, and knows better than the scan: what it did not find is not there any more.
    pub(super) fn all_walked(&self) {
        self.finish(|both| both.walked);
    }

    fn finish(&self, all: impl FnOnce(&Both) -> Amount) {
        let both = self.found.both.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all(&both);
        self.files.set_total(Total::Final(all.files));
        self.bytes.set_total(Total::Final(all.bytes));
    }

    /// The totals are said under the lock: nobody puts a smaller one in the place of a greater.
    fn find(&self, what: impl FnOnce(&mut Both)) {
        let mut both = self.found.both.lock().unwrap_or_else(PoisonError::into_inner);
        let before = both.most();
        what(&mut both);
        if !self.found.shows_growth {
            return;
        }
        let now = both.most();
        let raise = |meter: &Meter, before, now| {
            if now > before || meter.counts().total == Total::Unknown {
                meter.set_total(Total::Growing(now));
            }
        };
        raise(&self.files, before.files, now.files);
        raise(&self.bytes, before.bytes, now.bytes);
    }
}
