//! Progress of an operation: redrawn in place on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use plimsoll_progress::Operation;
use plimsoll_progress::view::{self, Look, Row};

use crate::draw::{self, Canvas};
use crate::output;

/// The minimum time between two plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(2);
/// Work that ends sooner is not shown.
const SHOW_DELAY: Duration = Duration::from_millis(400);

/// Draws or prints progress.
pub struct ProgressDisplay {
    canvas: Option<Canvas>,
    plain: bool,
    printed: Option<(Instant, String)>,
}

impl ProgressDisplay {
    /// Draws on a terminal, and prints lines on standard output elsewhere.
    pub fn new() -> Self {
        Self { plain: true, ..Self::on_terminal_only() }
    }

    /// Draws on a terminal, and prints nothing elsewhere: standard output is for results.
    pub fn on_terminal_only() -> Self {
        let terminal = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { canvas: terminal.then(Canvas::new), plain: false, printed: None }
    }

    /// Shows these rows in place of the last ones.
    pub fn show(&mut self, rows: &[Row]) {
        match &mut self.canvas {
            Some(canvas) => canvas.show(rows),
            None if self.plain => self.print(rows),
            None => {}
        }
    }

    /// Whether it is drawn on a terminal.
    pub fn is_drawn(&self) -> bool {
        self.canvas.is_some()
    }

    fn print(&mut self, rows: &[Row]) {
        let Some(root) = rows.first() else { return };
        let busy = rows.iter().skip(1).find(|row| row.depth == 1 && row.look != Look::Done);
        let text = match busy {
            Some(stage) => format!("{}; {}", draw::plain_row(root), draw::plain_row(stage)),
            None => draw::plain_row(root),
        };
        let recent = self.printed.as_ref().is_some_and(|(at, last)| at.elapsed() < LINE_INTERVAL || *last == text);
        if !recent {
            output::line(&text);
            self.printed = Some((Instant::now(), text));
        }
    }

    /// Clears what was drawn.
    pub fn clear(self) {
        if let Some(canvas) = self.canvas {
            canvas.wipe();
        }
    }

    /// Shows the tree of an operation of this program until the work is done.
    pub async fn show_while<T>(mut self, operation: &Operation, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let begun = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.clear();
                    return done;
                }
                _ = ticks.tick() => {
                    if begun.elapsed() >= SHOW_DELAY {
                        self.show(&view::rows_within(&operation.snapshot(), draw::max_rows()));
                    }
                }
            }
        }
    }
}
