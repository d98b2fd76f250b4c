//! Rows of a tree, on a terminal.

use std::io::Write;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use plimsoll_progress::view::{Look, Row};
use rustix::termios::tcgetwinsize;

const BAR: usize = 24;
/// Wipes the screen, and goes to its first line.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";
/// The number of rows where the height of the terminal is unknown.
pub const DEFAULT_ROWS: usize = 16;
/// The maximum number of rows.
const MAX_ROWS: usize = 40;
/// The minimum number of rows.
const MIN_ROWS: usize = 3;

/// So many rows fit on the terminal and leave room for the line that was typed: what does not fit cannot be drawn over again.
pub fn max_rows() -> usize {
    size().map_or(DEFAULT_ROWS, |(_, height)| usize::from(height).saturating_sub(2).clamp(MIN_ROWS, MAX_ROWS))
}

/// Width and height of the terminal that is drawn on.
fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(std::io::stderr()).ok()?;
    Some((size.ws_col, size.ws_row)).filter(|(_, height)| *height > 0)
}

/// Draws rows, and draws them again.
pub struct Canvas {
    all: MultiProgress,
    bars: Vec<ProgressBar>,
    size: Option<(u16, u16)>,
}

impl Canvas {
    /// Draws on standard error, if that is a terminal.
    pub fn new() -> Self {
        Self { all: MultiProgress::new(), bars: Vec::new(), size: size() }
    }

    /// Shows these rows in place of the last ones.
    pub fn show(&mut self, rows: &[Row]) {
        let size = size();
        if size != self.size {
            self.size = size;
            // The terminal has reflowed the old lines: the whole screen is drawn again.
            let _ = std::io::stderr().write_all(CLEAR);
        }
        while self.bars.len() > rows.len() {
            if let Some(bar) = self.bars.pop() {
                self.all.remove(&bar);
            }
        }
        while self.bars.len() < rows.len() {
            self.bars.push(self.all.add(ProgressBar::new(0).with_style(plain_style())));
        }
        for (bar, row) in self.bars.iter().zip(rows) {
            bar.set_message(paint(row));
            bar.tick();
        }
    }

    /// Clears the rows: the result is printed below.
    pub fn wipe(self) {
        for bar in &self.bars {
            bar.finish_and_clear();
        }
        let _ = self.all.clear();
    }
}

fn plain_style() -> ProgressStyle {
    ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// One row as a line with colours.
fn paint(row: &Row) -> String {
    let indent = "  ".repeat(row.depth);
    let mark = match row.look {
        Look::Done => "\u{1b}[32m✓\u{1b}[0m",
        Look::Failed | Look::Interrupted => "\u{1b}[31m✗\u{1b}[0m",
        Look::Stalled => "\u{1b}[31m!\u{1b}[0m",
        Look::Cancelled | Look::Skipped => "\u{1b}[33m-\u{1b}[0m",
        Look::Waiting | Look::TakenOver | Look::Quiet => "\u{1b}[33m…\u{1b}[0m",
        Look::Running => "\u{1b}[36m›\u{1b}[0m",
        Look::Pending | Look::Unknown => " ",
    };
    let label = format!("{indent}{}", row.label);
    let mut text = format!("{mark} {label:24.24}");
    if let Some(bar) = row.bar {
        text += &format!(" {}", bar_text(bar));
    }
    for part in [&row.percent, &row.counts, &row.bytes, &row.rate] {
        if !part.is_empty() {
            text += &format!("  {part}");
        }
    }
    if !row.left.is_empty() {
        text += &format!("  {} left", row.left);
    }
    if !row.detail.is_empty() {
        let colour = if row.look == Look::Stalled { "31" } else { "2" };
        text += &format!("  \u{1b}[{colour}m{}\u{1b}[0m", row.detail);
    }
    text
}

/// `[████████░░░░]`, drawn in eighths so that it moves even when it moves little.
fn bar_text(fraction: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 8 * BAR")]
    #[expect(clippy::cast_precision_loss, reason = "BAR is small")]
    let eighths = (fraction.clamp(0.0, 1.0) * (BAR * 8) as f64) as usize;
    let parts = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let full = "█".repeat(eighths / 8) + parts[eighths % 8];
    let used = eighths.div_ceil(8);
    format!("{full}{}", "░".repeat(BAR - used))
}

/// One row as plain text, for logs and pipes.
pub fn plain_row(row: &Row) -> String {
    let mut parts = vec![row.percent.as_str(), &row.counts, &row.bytes, &row.rate];
    let left = if row.left.is_empty() { String::new() } else { format!("{} left", row.left) };
    parts.extend([left.as_str(), &row.detail]);
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return format!("{}: {}", row.label, look_word(row.look));
    }
    format!("{}: {}", row.label, parts.join(", "))
}

/// The word for a row without numbers.
fn look_word(look: Look) -> &'static str {
    match look {
        Look::Pending => "not begun",
        Look::Running => "working",
        Look::Waiting => "waiting",
        Look::Quiet => "no signal",
        Look::Stalled => "stalled",
        Look::TakenOver => "taken over",
        Look::Done => "done",
        Look::Skipped => "skipped",
        Look::Failed => "failed",
        Look::Cancelled => "cancelled",
        Look::Interrupted => "interrupted",
        Look::Unknown => "unknown",
    }
}

/// A duration, for people.
pub fn duration(seconds: f64) -> String {
    plimsoll_progress::view::duration_text(Duration::from_secs_f64(seconds.max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_the_same_width() {
        for fraction in [-1.0, 0.0, 0.001, 0.3333, 0.5, 0.999, 1.0, 7.0] {
            assert_eq!(bar_text(fraction).chars().count(), BAR, "{fraction}");
        }
        assert!(bar_text(0.9999).ends_with(['▉', '▊', '░']), "not full before the end: {}", bar_text(0.9999));
    }
}
