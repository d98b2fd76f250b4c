//! Records a real run as a trace: `<milliseconds> <settled> <total> <signs of life>` on a line, `~` after a total that may still
//! change. A sign of life is anything but counting: something new to work on, bytes on their way.
//!
//! Reads what anything of ours says about itself while it runs, one JSON object a line, and stamps it as it comes:
//!
//! ```text
//! plimsoll backup create b --events json | cargo run -p plimsoll-progress --example record > b.trace
//! (cat job.json; sleep 600) | plimsoll mover | cargo run -p plimsoll-progress --example record > transfer.trace
//! ```
//!
//! A trace under `tests/traces` is graded from then on, in the tests and by `make bench`.

use std::io::{BufRead, Write};
use std::time::Instant;

use plimsoll_progress::{Clock, Counts, Frame, Replica, Total, Unit};

/// A trace is kept small: one reading a second is what a person sees, too.
const BETWEEN_READINGS: u128 = 1000;

fn main() -> std::io::Result<()> {
    let (began, mut replica) = (Instant::now(), Replica::new(Clock::system()));
    let mut out = std::io::stdout().lock();
    let (mut written, mut held) = (None, None);
    for line in std::io::stdin().lock().lines() {
        let Some(reading) = reading(&line?, &mut replica) else { continue };
        let at = began.elapsed().as_millis();
        held = Some((at, reading));
        if written.is_none_or(|last| at >= last + BETWEEN_READINGS) {
            write(&mut out, at, &reading)?;
            (written, held) = (Some(at), None);
        }
    }
    held.map_or(Ok(()), |(at, reading)| write(&mut out, at, &reading))
}

fn write(out: &mut impl Write, at: u128, (counts, signals): &(Counts, u64)) -> std::io::Result<()> {
    let mark = if counts.total.is_final() { "" } else { "~" };
    writeln!(out, "{at} {} {}{mark} {signals}", counts.settled(), counts.total.value().unwrap_or(0))
}

/// What a frame or an event says.
fn reading(line: &str, replica: &mut Replica) -> Option<(Counts, u64)> {
    let Ok(frame) = Frame::from_line(line) else { return event(line) };
    replica.apply(&frame).ok()?;
    let snapshot = replica.snapshot()?;
    let node = snapshot.nodes.iter().find(|node| node.meters.first().is_some_and(|counts| counts.settled() > 0));
    node.and_then(|node| Some((*node.meters.first()?, node.signals)))
}

fn event(line: &str) -> Option<(Counts, u64)> {
    let event: serde_json::Value = serde_json::from_str(line).ok()?;
    let number = |name: &str| event.get(name).and_then(serde_json::Value::as_u64);
    let total = number("total")?;
    // The percentage has the mark of a total that may still change.
    let growing = event.get("percent").and_then(serde_json::Value::as_str).is_some_and(|text| text.starts_with('~'));
    let total = if growing { Total::Growing(total) } else { Total::Final(total) };
    let [done, skipped, failed] = ["done", "skipped", "failed"].map(|name| number(name).unwrap_or(0));
    Some((Counts { done, skipped, failed, total, ..Counts::zero(Unit::Items) }, 0))
}
