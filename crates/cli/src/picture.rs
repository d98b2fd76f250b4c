//! A picture of something that goes on: drawn again and again on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use plimsoll_progress::Operation;
use plimsoll_progress::view::{self, Look, Row};

use crate::draw::{self, Canvas};
use crate::output;

/// Plain lines come this often at most.
const BETWEEN_LINES: Duration = Duration::from_secs(2);
/// What is over sooner than this is not worth a picture.
const WORTH_SHOWING: Duration = Duration::from_millis(400);

/// Draws, or prints.
pub struct Picture {
    canvas: Option<Canvas>,
    plain: bool,
    printed: Option<(Instant, String)>,
}

impl Picture {
    /// On a terminal a picture, elsewhere lines on standard output.
    pub fn new() -> Self {
        Self { plain: true, ..Self::on_terminal_only() }
    }

    /// On a terminal a picture, elsewhere nothing: standard output is for results.
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
            Some(stage) => format!("{}; {}", draw::plain(root), draw::plain(stage)),
            None => draw::plain(root),
        };
        let recent = self.printed.as_ref().is_some_and(|(at, last)| at.elapsed() < BETWEEN_LINES || *last == text);
        if !recent {
            output::line(&text);
            self.printed = Some((Instant::now(), text));
        }
    }

    /// Takes it away: what follows says how it ended.
    pub fn wipe(self) {
        if let Some(canvas) = self.canvas {
            canvas.wipe();
        }
    }

    /// Shows the tree of something this program does itself, while it does it.
    pub async fn of<T>(mut self, operation: &Operation, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let begun = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.wipe();
                    return done;
                }
                _ = ticks.tick() => {
                    if begun.elapsed() >= WORTH_SHOWING {
                        self.show(&view::rows_within(&operation.snapshot(), draw::most_rows()));
                    }
                }
            }
        }
    }
}
