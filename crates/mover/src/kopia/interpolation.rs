//! The bytes between two of kopia's lines, from the I/O of its process.
//!
//! kopia prints sizes with one decimal: above 1 TB a line stays the same for 100 GB, which takes a quarter of an hour. In between the
//! process's own I/O tells how far it is: what one byte of I/O is worth is measured from one change of the line to the next, when the
//! true size is known.

use std::collections::VecDeque;

use plimsoll_progress::kopia_output::Size;

/// Changes of the line that are remembered: enough to average over, few enough to follow a change of the work.
const MAX_CHANGES: usize = 6;
/// A byte of I/O is worth between this and a whole byte: the rest is the repository's own traffic.
const MIN_WORTH: f64 = 0.2;
/// A difference between estimate and measurement is made good by going so much faster or slower.
const MAX_CORRECTION: f64 = 0.1;
/// A greater difference, in steps of the line, is made good at once: such work causes no I/O.
const MAX_SLEW: f64 = 0.25;
/// So much of a step the estimate may be ahead of the line.
const MAX_LEAD: f64 = 0.03;

/// Estimates the bytes that are done.
#[derive(Debug, Default)]
pub(crate) struct Interpolation {
    /// The moments at which the line changed.
    changes: VecDeque<Change>,
    line: Option<Size>,
    io: u64,
    estimate: f64,
}

/// A moment at which the size is known: the line has just changed.
#[derive(Clone, Copy, Debug)]
struct Change {
    bytes: u64,
    io: u64,
}

impl Interpolation {
    /// The bytes done, by the latest line and the I/O counter of the process. Without the counter the line alone counts.
    pub(crate) fn bytes(&mut self, line: Size, io: Option<u64>) -> u64 {
        let Some(io) = io else { return line.low };
        let moved = as_f64(io.saturating_sub(self.io));
        if self.line != Some(line) {
            self.note_change(line, io);
        }
        self.io = io;
        let worth = self.worth();
        let (low, step) = (as_f64(line.low), as_f64(line.step));
        let last = self.changes.back().copied().unwrap_or(Change { bytes: line.low, io });
        let known = as_f64(last.bytes.max(line.low));
        let target = (known + worth * as_f64(io.saturating_sub(last.io))).min(low + (1.0 + MAX_LEAD) * step);
        let behind = target - self.estimate;
        if behind > MAX_SLEW * step {
            self.estimate = target;
        } else {
            let pace = worth * moved;
            self.estimate += behind.clamp((1.0 - MAX_CORRECTION) * pace, (1.0 + MAX_CORRECTION) * pace);
        }
        self.estimate = self.estimate.min(low + (1.0 + MAX_LEAD) * step);
        whole(self.estimate)
    }

    fn note_change(&mut self, line: Size, io: u64) {
        // A larger unit makes the line coarser, and its lower limit less: what is known from before is more.
        let coarser = self.line.is_some_and(|before| before.low >= line.low);
        self.line = Some(line);
        if coarser {
            return;
        }
        self.changes.push_back(Change { bytes: line.low, io });
        if self.changes.len() > MAX_CHANGES {
            self.changes.pop_front();
        }
    }

    /// How many bytes of the work a byte of I/O stands for.
    fn worth(&self) -> f64 {
        let measured = self.changes.front().zip(self.changes.back()).and_then(|(first, last)| {
            let (bytes, io) = (last.bytes - first.bytes, last.io - first.io);
            (bytes > 0 && io > 0).then(|| as_f64(bytes) / as_f64(io))
        });
        measured.unwrap_or(1.0).clamp(MIN_WORTH, 1.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate needs no more than 53 bits")]
fn as_f64(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and far below 2^63")]
fn whole(number: f64) -> u64 {
    number.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_progress::kopia_output::ProgressLine;
    use plimsoll_progress::{Operation, Total, Unit, VirtualClock};

    use super::*;

    const TB: u64 = 1_000_000_000_000;

    /// The line that kopia prints for so many bytes, and what is read from it.
    fn line(bytes: u64) -> Size {
        let units = [(TB, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "KB"), (1, "B")];
        let (scale, unit) = units.into_iter().find(|(scale, _)| bytes >= *scale).unwrap_or((1, "B"));
        let tenths = (u128::from(bytes) * 10 + u128::from(scale) / 2) / u128::from(scale);
        let text = format!(
            " / 1 hashing, 9 hashed ({}.{} {unit}), 0 cached (0 B), uploaded 1 TB, estimated 90 TB (9.0%) 9h left",
            tenths / 10,
            tenths % 10
        );
        match ProgressLine::parse(&text) {
            Some(ProgressLine::Upload { hashed, .. }) => hashed,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// The greatest relative error of the rate, and of the bytes in shares of a step, in a backup of so many bytes.
    fn errors(from: u64, to: u64, rate: impl Fn(u64) -> u64, surplus: impl Fn(u64) -> f64) -> (f64, f64) {
        let clock = VirtualClock::new();
        let operation = Operation::new("kopia", clock.clock());
        let meter = operation.root().meter(Unit::Bytes);
        meter.set_total(Total::Growing(90 * TB));
        let mut interpolation = Interpolation::default();
        let (mut bytes, mut io, mut second) = (0_u64, 0_u64, 0_u64);
        let (mut worst_rate, mut worst_bytes) = (0.0_f64, 0.0_f64);
        while bytes < to {
            let now = if bytes < from { 1_000_000_000 } else { rate(second) };
            bytes += now;
            io += whole(as_f64(now) * surplus(second));
            second += 1;
            clock.advance(Duration::from_secs(1));
            let shown = interpolation.bytes(line(bytes), Some(io));
            meter.set_done(shown);
            let node = operation.snapshot().nodes[0].clone();
            // The first minutes after the fast start do not count.
            if bytes > from + from / 5 {
                let true_rate = (0..30).map(|back| rate(second.saturating_sub(back))).sum::<u64>() / 30;
                let error = (as_f64(node.rate.unwrap_or(0)) / as_f64(true_rate) - 1.0).abs();
                worst_rate = worst_rate.max(error);
                let step = as_f64(line(bytes).step);
                worst_bytes = worst_bytes.max((as_f64(shown) - as_f64(bytes)).abs() / step);
            }
        }
        (worst_rate, worst_bytes)
    }

    #[test]
    fn above_a_terabyte_the_rate_is_within_a_fifth_of_the_truth_and_the_bytes_within_a_tenth_of_a_step() {
        for (rate, surplus) in [(100_000_000, 1.0), (400_000_000, 1.02), (1_000_000_000, 1.35), (60_000_000, 2.5)] {
            let (rate_error, bytes_error) = errors(TB, 3 * TB, |_| rate, |_| surplus);
            assert!(rate_error < 0.2, "{rate} B/s, {surplus}: rate off by {rate_error}");
            assert!(bytes_error < 0.1, "{rate} B/s, {surplus}: bytes off by {bytes_error} steps");
        }
        // A surplus that comes and goes, as index reads and cache writes do.
        let (rate_error, _) = errors(TB, 3 * TB, |_| 300_000_000, |second| if second % 10 < 3 { 1.3 } else { 1.1 });
        assert!(rate_error < 0.2, "rate off by {rate_error}");
    }

    #[test]
    fn a_speed_that_changes_shows_at_once_and_not_at_the_next_line() {
        let rate = |second: u64| if second / 600 % 2 == 0 { 100_000_000 } else { 50_000_000 };
        let (rate_error, _) = errors(TB, 2 * TB, rate, |_| 1.1);
        assert!(rate_error < 0.2, "rate off by {rate_error}");
    }

    #[test]
    fn without_the_counters_of_the_process_the_line_alone_counts() {
        let mut interpolation = Interpolation::default();
        let size = line(1_234 * TB / 1000);
        assert_eq!(interpolation.bytes(size, None), size.low);
        assert_eq!(size.step, TB / 10);
    }

    #[test]
    fn work_without_io_is_shown_as_the_line_shows_it_and_io_without_work_is_not() {
        let mut interpolation = Interpolation::default();
        let first = line(TB + TB / 20);
        assert_eq!(interpolation.bytes(first, Some(1000)), first.low);
        let later = line(TB + TB / 2);
        assert_eq!(interpolation.bytes(later, Some(1000)), later.low, "cached files");
        let shown = interpolation.bytes(later, Some(100 * TB));
        assert!(shown <= later.low + later.step + later.step / 20, "at most a step ahead of the line: {shown}");
    }
}
