//! Bytes and files of one transfer, from sources that report absolute numbers and may be wrong about them.

use plimsoll_progress::{Meter, Task, Total, Unit};

use crate::status::SCANNING;

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

    /// The source is still being looked through: whatever total it has reached will grow.
    pub(crate) fn scanning(&self, bytes: u64, total: u64) {
        self.task.say(SCANNING);
        self.bytes.set_total(Total::Growing(total.max(bytes)));
        self.bytes.set_done(bytes);
    }

    /// An estimate of all bytes.
    pub(crate) fn estimate(&self, total: u64) {
        self.bytes.set_total(Total::Growing(total));
    }

    /// All bytes there are.
    pub(crate) fn total(&self, bytes: u64) {
        self.bytes.set_total(Total::Final(bytes));
    }

    /// All files there are.
    pub(crate) fn total_files(&self, files: u64) {
        self.files.set_total(Total::Final(files));
    }

    /// What is done so far: below the total, because only the program's end is the end.
    pub(crate) fn done(&self, bytes: u64) {
        self.bytes.set_done(below(bytes, self.bytes.counts().total));
    }

    /// What was counted so far.
    pub(crate) fn bytes_done(&self) -> u64 {
        self.bytes.counts().done
    }

    /// The same for files.
    pub(crate) fn done_files(&self, files: u64) {
        self.files.set_done(below(files, self.files.counts().total));
    }

    /// What is being worked on.
    pub(crate) fn item(&self, name: &str) {
        self.task.say(name);
    }

    /// Something heard that may explain a stall.
    pub(crate) fn hint(&self, text: &str) {
        self.task.hint(text);
    }

    /// It has ended well, and this is what it came to.
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
    fn a_source_that_reports_more_than_there_is_does_not_reach_the_total_before_the_end() {
        let operation = Operation::new("t", Clock::system());
        let meters = Meters::new(&operation.root());
        meters.total(100);
        meters.done(250);
        assert_eq!(meters.bytes.counts().done, 99);
        meters.finish(100, 3);
        assert_eq!((meters.bytes.counts().done, meters.files.counts().done), (100, 3));
    }
}
