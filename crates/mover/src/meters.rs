//! The byte and file meters of a transfer, fed by programs that report absolute and sometimes wrong numbers.

use plimsoll_progress::{Meter, Task, Total, Unit};

use crate::transfer_progress::SCANNING;

/// The meters of one transfer.
#[derive(Debug)]
pub(crate) struct Meters {
    task: Task,
    bytes: Meter,
    files: Meter,
}

impl Meters {
    pub(crate) fn new(task: &Task) -> Self {
        Self { task: task.clone(), bytes: task.meter(Unit::Bytes), files: task.meter(Unit::Files) }
    }

    /// The source is still being scanned: the total will grow.
    pub(crate) fn scanning(&self, bytes: u64, total: u64) {
        self.task.say(SCANNING);
        self.bytes.set_total(Total::Growing(total.max(bytes)));
        self.bytes.set_done(bytes);
    }

    /// Sets an estimate of the total bytes.
    pub(crate) fn estimate(&self, total: u64) {
        self.bytes.set_total(Total::Growing(total));
    }

    /// Sets the final total of bytes.
    pub(crate) fn total(&self, bytes: u64) {
        self.bytes.set_total(Total::Final(bytes));
    }

    /// Sets the final total of files.
    pub(crate) fn total_files(&self, files: u64) {
        self.files.set_total(Total::Final(files));
    }

    /// Sets the bytes done. Stays below the total until [`Meters::finish`].
    pub(crate) fn done(&self, bytes: u64) {
        self.bytes.set_done(below(bytes, self.bytes.counts().total));
    }

    /// The bytes done.
    pub(crate) fn bytes_done(&self) -> u64 {
        self.bytes.counts().done
    }

    /// Sets the files done. Stays below the total until [`Meters::finish`].
    pub(crate) fn done_files(&self, files: u64) {
        self.files.set_done(below(files, self.files.counts().total));
    }

    /// Sets the current item.
    pub(crate) fn item(&self, name: &str) {
        self.task.say(name);
    }

    /// Sets a hint that may explain a stall.
    pub(crate) fn hint(&self, text: &str) {
        self.task.hint(text);
    }

    /// Sets the final numbers after success.
    pub(crate) fn finish(&self, bytes: u64, files: u64) {
        for (meter, value) in [(&self.bytes, bytes), (&self.files, files)] {
            meter.set_total(Total::Final(value));
            meter.set_done(value);
        }
    }
}

fn below(value: u64, total: Total) -> u64 {
    match total {
        Total::Final(total) => value.min(total.saturating_sub(1)),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Clock, Operation};

    use super::*;

    #[test]
    fn a_program_that_reports_too_many_bytes_does_not_reach_the_total_before_the_end() {
        let operation = Operation::new("t", Clock::system());
        let meters = Meters::new(&operation.root());
        meters.total(100);
        meters.done(250);
        assert_eq!(meters.bytes.counts().done, 99);
        meters.finish(100, 3);
        assert_eq!((meters.bytes.counts().done, meters.files.counts().done), (100, 3));
    }
}
