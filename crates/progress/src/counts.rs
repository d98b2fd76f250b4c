//! What a meter says, as plain numbers.

use serde::{Deserialize, Serialize};

/// Four exbibytes and more do not occur: a greater number is cut to this.
pub(crate) const MAX_COUNT: u64 = u64::MAX >> 2;

/// What a meter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Unit {
    /// Kubernetes objects and other things with a name.
    Items,
    /// Bytes of data.
    Bytes,
    /// Files of a volume.
    Files,
    /// Steps of a procedure, each as long as the others for all we know.
    Steps,
    /// Bytes sent to a store: fewer than were read where the store has some of them already.
    Uploaded,
    /// Bytes received from a store.
    Downloaded,
}

impl Unit {
    /// All of them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Items, Self::Bytes, Self::Files, Self::Steps, Self::Uploaded, Self::Downloaded];

    /// Whether it counts bytes of any sort.
    pub fn is_bytes(self) -> bool {
        matches!(self, Self::Bytes | Self::Uploaded | Self::Downloaded)
    }
}

/// How much there is to do, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Total {
    /// Nothing is known yet.
    #[default]
    Unknown,
    /// At least this much so far, or an estimate: it may still be corrected.
    Growing(u64),
    /// Exactly this much. Never corrected again.
    Final(u64),
}

impl Total {
    /// The number, if there is one.
    pub fn value(self) -> Option<u64> {
        match self {
            Self::Unknown => None,
            Self::Growing(value) | Self::Final(value) => Some(value),
        }
    }

    /// Whether it can no longer change.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Final(_))
    }

    /// This total, where less is counted so far than was `shown`: an estimate that begins again says less than the one before.
    fn estimated_over(self, shown: Self, is_behind: bool) -> Self {
        match (self, shown.value()) {
            (Self::Unknown, Some(shown)) if is_behind => Self::Growing(shown),
            (Self::Growing(total), Some(shown)) if is_behind => Self::Growing(total.max(shown)),
            _ => self,
        }
    }

    /// The same amount, open to correction again: what a saved total is worth to the process that takes over.
    pub(crate) fn reopened(self) -> Self {
        self.value().map_or(Self::Unknown, Self::Growing)
    }
}

/// One reading of a meter.
///
/// A total is never below what is settled: what another process or a custom resource says otherwise is corrected when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "WrittenCounts")]
pub struct Counts {
    /// What is counted.
    pub unit: Unit,
    /// Done well.
    #[serde(default)]
    pub done: u64,
    /// Settled without work, for a reason.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// Settled, but not well.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// How much there is to settle.
    #[serde(default)]
    pub total: Total,
    /// What the worker counted beyond a final total. Not shown as progress; anything but zero is a defect of the caller.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overrun: u64,
    /// What was missing from a final total when the task ended well, and was taken off the total.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shortfall: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// A reading as it was written, which may contradict itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenCounts {
    unit: Unit,
    #[serde(default)]
    done: u64,
    #[serde(default)]
    skipped: u64,
    #[serde(default)]
    failed: u64,
    #[serde(default)]
    total: Total,
    #[serde(default)]
    overrun: u64,
    #[serde(default)]
    shortfall: u64,
}

impl From<WrittenCounts> for Counts {
    fn from(written: WrittenCounts) -> Self {
        let WrittenCounts { unit, total, overrun, shortfall, .. } = written;
        let [done, skipped, failed] = [written.done, written.skipped, written.failed].map(|count| count.min(MAX_COUNT));
        Self { unit, done, skipped, failed, total, overrun, shortfall }.covered()
    }
}

impl Counts {
    /// A meter that has counted nothing.
    pub fn zero(unit: Unit) -> Self {
        Self { unit, done: 0, skipped: 0, failed: 0, total: Total::Unknown, overrun: 0, shortfall: 0 }
    }

    /// The same reading with a total that covers what is settled: for numbers from elsewhere.
    #[must_use]
    pub fn covered(self) -> Self {
        let settled = self.settled();
        let total = match self.total {
            Total::Unknown => Total::Unknown,
            Total::Growing(total) => Total::Growing(total.max(settled)),
            Total::Final(total) => Total::Final(total.max(settled)),
        };
        Self { total, ..self }
    }

    /// Done, skipped and failed together. Saturating, since a reading may come from another process.
    pub fn settled(&self) -> u64 {
        self.done.saturating_add(self.skipped).saturating_add(self.failed)
    }

    /// What is left of the total, if one is known.
    pub fn remaining(&self) -> Option<u64> {
        self.total.value().map(|total| total.saturating_sub(self.settled()))
    }

    /// Settled over total, between 0 and 1; nothing while the total is unknown.
    pub fn fraction(&self) -> Option<f64> {
        let total = self.total.value()?;
        Some(if total == 0 { 0.0 } else { (ratio(self.settled(), total)).min(1.0) })
    }

    /// This reading, as it may be shown after `shown`: no counter below what was shown, and never beyond a
    /// total.
    ///
    /// What is beyond a final total is taken off what was added since, so that no counter falls. A growing total grows with it.
    #[must_use]
    pub(crate) fn raised_over(mut self, shown: &Counts) -> Self {
        let counted = self.settled();
        let settled = counted.max(shown.settled());
        self.total = self.total.estimated_over(shown.total, counted < shown.settled());
        self.done = self.done.max(shown.done);
        self.skipped = self.skipped.max(shown.skipped);
        self.failed = self.failed.max(shown.failed);
        // What an earlier process did, this one may skip: the same thing does not count twice.
        self.clip(self.settled().saturating_sub(settled), shown);
        if let Total::Final(total) = self.total {
            let total = total.max(shown.settled());
            self.total = Total::Final(total);
            self.overrun = self.overrun.max(counted.saturating_sub(total));
            self.clip(self.settled().saturating_sub(total), shown);
        }
        if let Total::Growing(total) = self.total {
            self.total = Total::Growing(total.max(self.settled()));
        }
        self
    }

    fn clip(&mut self, excess: u64, shown: &Counts) {
        let mut excess = excess;
        for (value, floor) in
            [(&mut self.done, shown.done), (&mut self.skipped, shown.skipped), (&mut self.failed, shown.failed)]
        {
            let cut = excess.min(*value - floor);
            *value -= cut;
            excess -= cut;
        }
    }

    /// This reading once its task has ended well: the total is what was settled, and what had been missing is kept in
    /// sight. Nothing is counted as done that was not.
    #[must_use]
    pub(crate) fn ended_well(mut self) -> Self {
        if let Total::Final(total) = self.total {
            self.shortfall = self.shortfall.max(total.saturating_sub(self.settled()));
        }
        self.total = Total::Final(self.settled());
        self
    }
}

/// A quotient for display; 53 bits are plenty.
#[expect(clippy::cast_precision_loss, reason = "a share for display needs no more than 53 bits")]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
