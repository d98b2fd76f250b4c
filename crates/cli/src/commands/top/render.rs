//! The picture, for whatever size the terminal has now.

use plimsoll_observe::{Explanation, OperationSummary as Operation, Verdict};
use plimsoll_progress::view::{self, Look, Row};

use super::app::{App, Prompt, View};
use super::canvas::{Canvas, Colour, Line, Style};
use super::list::{self, Cells};

const KEYS: &str = "↑↓ select  ⏎ open  w why  l log  c cancel  s sort  / filter  e ended  ? help  q quit";
const HELP: [&str; 13] = [
    "↑ ↓ j k        select, or scroll",
    "Enter, →       open the tree of the selected operation",
    "w              explain its state, with evidence and the next commands",
    "l              the end of its log",
    "c              cancel it, after confirmation",
    "s              sort by urgency, age, name or progress",
    "/              filter by any text; Esc clears",
    "e              show or hide ended operations",
    "g G PgUp PgDn  first, last, page up, page down",
    "Esc, ←         back",
    "q, Ctrl-C      quit",
    "",
    "Only `c` changes the cluster, after confirmation.",
];

/// Draws everything.
pub fn draw(canvas: &mut Canvas, app: &mut App) {
    let (width, last) = (canvas.width, canvas.height.saturating_sub(1));
    match app.view.clone() {
        View::List => overview(canvas, 1..last, app),
        View::Tree => tree(canvas, 1..last, app),
        View::Why => {
            let (title, lines) = match app.line() {
                Some(line) => (format!("why {}", line.reference), why_lines(&line.explanation, width)),
                None => ("why".to_owned(), vec![Line::plain("It no longer exists.")]),
            };
            scrolled(canvas, 1..last, &mut app.scroll, &title, &lines);
        }
        View::Log(text) => {
            let lines: Vec<Line> = text.lines().flat_map(|line| Line::plain(line).wrapped(width)).collect();
            scrolled(canvas, 1..last, &mut app.scroll, "log", &lines);
        }
        View::Help => scrolled(canvas, 1..last, &mut app.scroll, "help", &HELP.map(Line::plain)),
    }
    // After the rest: on a terminal of two rows they are what remains.
    canvas.put(0, 0, &header(app, width));
    canvas.put(0, last, &footer(app));
    if let Prompt::Cancel(reference) = &app.prompt {
        ask(canvas, &format!("Cancel {reference}?  y: yes, any other key: no"));
    }
}

type Rows = std::ops::Range<usize>;

fn header(app: &App, width: usize) -> Line {
    let counts = list::summary(&app.lines);
    let colour = if counts.starts_with("0 stuck") { Colour::Green } else { Colour::Red };
    let left = format!("plimsoll top  {}  ", app.namespace);
    let clock = format!("sorted by {}  {}", app.sort.word(), app.clock);
    let used = left.chars().count() + counts.chars().count() + clock.chars().count();
    let line = Line::styled(&left, Style::bold()).and(&counts, Style { bold: true, ..Style::of(colour) });
    let Some(gap) = width.checked_sub(used).filter(|gap| *gap > 1) else { return line };
    line.and(&(" ".repeat(gap) + &clock), Style::default())
}

fn footer(app: &App) -> Line {
    match &app.prompt {
        Prompt::Filter => Line::plain(&format!("filter: {}▏  ⏎ keep  Esc clear", app.filter)),
        Prompt::Say(text) => Line::styled(text, Style::of(Colour::Yellow)),
        _ if !app.unseen.is_empty() => {
            let unseen: Vec<_> = app.unseen.iter().map(|unseen| format!("{} ({})", unseen.what, unseen.why)).collect();
            Line::styled(&format!("not read: {}   {KEYS}", unseen.join(", ")), Style::of(Colour::Yellow))
        }
        _ if !app.filter.is_empty() => Line::plain(&format!("filter: {}   {KEYS}", app.filter)),
        _ => Line::styled(KEYS, Style::dim()),
    }
}

/// The list, and below it what is to be said about the chosen one.
fn overview(canvas: &mut Canvas, rows: Rows, app: &App) {
    if app.lines.is_empty() {
        let text = match (app.ready, app.filter.is_empty()) {
            (false, _) => vec!["looking …".to_owned()],
            (true, true) => list::nothing(&app.namespace, app.server_missing.as_ref()),
            (true, false) => vec![format!("Nothing matches {:?}; Esc clears the filter.", app.filter)],
        };
        put_all(canvas, rows, &text.iter().map(|line| Line::plain(line)).collect::<Vec<_>>());
        return;
    }
    let told = app.line().map(|line| about(&line.explanation, canvas.width)).unwrap_or_default();
    let below = told_height(&told, &rows);
    table(canvas, rows.start..rows.end - below, app);
    if below > 0 {
        let title = app.line().map(|line| line.reference.to_string()).unwrap_or_default();
        canvas.rule(rows.end - below, &title);
        put_all(canvas, rows.end - below + 1..rows.end, &told);
    }
}

/// How many rows the lower part gets: what it needs, but the list keeps half, and all of a very small terminal.
fn told_height(told: &[Line], rows: &Rows) -> usize {
    let most = if rows.len() < 8 { 0 } else { rows.len() / 2 + 1 };
    (told.len() + 1).min(most)
}

fn put_all(canvas: &mut Canvas, rows: Rows, lines: &[Line]) {
    for (row, line) in rows.zip(lines) {
        canvas.put(0, row, line);
    }
}

/// How wide each column is at this width; what does not fit is left out, the least important first.
struct Widths {
    name: usize,
    bar: usize,
    done: usize,
    rate: usize,
    left: usize,
    age: usize,
}

impl Widths {
    fn of(width: usize, cells: &[Cells]) -> Self {
        let widest = |cell: fn(&Cells) -> &String| cells.iter().map(|it| cell(it).chars().count()).max().unwrap_or(0);
        let name = widest(|cells| &cells.name).clamp(8, (width / 3).clamp(12, 48));
        let some = |wide: bool, column: usize| if wide { column } else { 0 };
        Self {
            name,
            bar: some(width >= 130, 12),
            done: some(width >= 110, widest(|cells| &cells.done).min(26)),
            rate: some(width >= 120, widest(|cells| &cells.rate).min(14)),
            left: some(width >= 100, widest(|cells| &cells.left).min(18)),
            age: some(width >= 60, 6),
        }
    }
}

fn table(canvas: &mut Canvas, rows: Rows, app: &App) {
    let height = rows.len().saturating_sub(1);
    let chosen = app.position().unwrap_or(0);
    // The chosen one stays in sight.
    let first = (chosen + 1).saturating_sub(height);
    let shown = &app.lines[first..app.lines.len().min(first + height)];
    let cells: Vec<Cells> = shown.iter().map(Cells::of).collect();
    let widths = Widths::of(canvas.width, &cells);
    canvas.put(0, rows.start, &heading(&widths));
    for ((line, cells), place) in shown.iter().zip(&cells).zip(0..) {
        let drawn = one_line(line, cells, &widths);
        let drawn = if first + place == chosen { drawn.chosen(canvas.width) } else { drawn };
        canvas.put(0, rows.start + 1 + place, &drawn);
    }
}

fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return format!("{text:width$}");
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn heading(widths: &Widths) -> Line {
    let mut text = format!("  {} {} {:>8}", fit("NAME", widths.name), fit("STATUS", 10), "PROGRESS");
    let columns =
        [("", widths.bar), ("DONE", widths.done), ("RATE", widths.rate), ("LEFT", widths.left), ("AGE", widths.age)];
    for (title, width) in columns.iter().filter(|(_, width)| *width > 0) {
        text += &format!(" {}", fit(title, *width));
    }
    Line::styled(&(text + " WHAT"), Style { bold: true, dim: true, ..Style::default() })
}

fn one_line(line: &Operation, cells: &Cells, widths: &Widths) -> Line {
    let (style, plain) = (style(line.look), Style::default());
    let mut drawn = Line::styled(&format!("{} ", mark(line.look)), style)
        .and(&format!("{} ", fit(&cells.name, widths.name)), plain)
        .and(&format!("{} ", fit(&cells.status, 10)), style)
        .and(&format!("{:>8}", cells.percent), plain);
    if widths.bar > 0 {
        let share = line.explanation.tree.percent().map(plimsoll_progress::Percent::fraction);
        let bar = share.map_or_else(|| " ".repeat(widths.bar), |share| bar(share, widths.bar));
        drawn = drawn.and(&format!(" {bar}"), style);
    }
    let columns =
        [(&cells.done, widths.done), (&cells.rate, widths.rate), (&cells.left, widths.left), (&cells.age, widths.age)];
    for (cell, width) in columns.into_iter().filter(|(_, width)| *width > 0) {
        drawn = drawn.and(&format!(" {}", fit(cell, width)), plain);
    }
    drawn.and(&format!(" {}", cells.what), style)
}

fn mark(look: Look) -> &'static str {
    match look {
        Look::Done => "✓",
        Look::Failed | Look::Interrupted => "✗",
        Look::Stalled => "!",
        Look::Cancelled | Look::Skipped => "-",
        Look::Waiting | Look::TakenOver | Look::Quiet => "…",
        Look::Running => "›",
        Look::Pending | Look::Unknown => " ",
    }
}

fn style(look: Look) -> Style {
    match look {
        Look::Stalled => Style { bold: true, ..Style::of(Colour::Red) },
        Look::Failed | Look::Interrupted => Style::of(Colour::Red),
        Look::Waiting | Look::TakenOver | Look::Quiet | Look::Cancelled | Look::Skipped => Style::of(Colour::Yellow),
        Look::Running => Style::of(Colour::Cyan),
        Look::Done => Style::of(Colour::Green),
        Look::Pending | Look::Unknown => Style::default(),
    }
}

fn bar(share: f64, width: usize) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and width")]
    #[expect(clippy::cast_precision_loss, reason = "a width is small")]
    let full = (share.clamp(0.0, 1.0) * width as f64) as usize;
    "█".repeat(full) + &"░".repeat(width - full)
}

/// What there is to say about one operation, shortly: headline, causes, next commands.
fn about(told: &Explanation, width: usize) -> Vec<Line> {
    let mut lines = Line::styled(&told.headline, Style::bold()).wrapped(width);
    for cause in told.causes.iter().take(3) {
        let word = super::super::why::word(cause);
        let calm = cause.expected || told.verdict == Verdict::Moving;
        let colour = if calm { Colour::Yellow } else { Colour::Red };
        lines.extend(
            Line::styled(&format!("{word:7}"), Style::dim()).and(&cause.text, Style::of(colour)).wrapped(width),
        );
        let next =
            cause.next.iter().take(1).map(|next| Line::styled("next   ", Style::dim()).and(next, Style::default()));
        lines.extend(next.flat_map(|line| line.wrapped(width)));
    }
    lines
}

fn why_lines(told: &Explanation, width: usize) -> Vec<Line> {
    super::super::why::text(told).iter().flat_map(|line| Line::plain(line).wrapped(width)).collect()
}

/// Lines that may be more than fit.
fn scrolled(canvas: &mut Canvas, rows: Rows, scroll: &mut usize, title: &str, lines: &[Line]) {
    let height = rows.len().saturating_sub(1);
    *scroll = (*scroll).min(lines.len().saturating_sub(height));
    canvas.rule(rows.start, title);
    put_all(canvas, rows.start + 1..rows.end, &lines[*scroll..]);
}

fn tree(canvas: &mut Canvas, rows: Rows, app: &mut App) {
    let Some(line) = app.line() else {
        canvas.put(0, rows.start, &Line::plain("It no longer exists."));
        return;
    };
    let title = line.reference.to_string();
    let told = about(&line.explanation, canvas.width);
    let lines: Vec<Line> = view::rows(&line.explanation.tree).iter().map(|row| tree_row(row, canvas.width)).collect();
    let below = told_height(&told, &rows);
    scrolled(canvas, rows.start..rows.end - below, &mut app.scroll, &title, &lines);
    if below > 0 {
        canvas.rule(rows.end - below, "");
        put_all(canvas, rows.end - below + 1..rows.end, &told);
    }
}

fn tree_row(row: &Row, width: usize) -> Line {
    let style = style(row.look);
    let label = format!("{}{}", "  ".repeat(row.depth), row.label);
    let mut line = Line::styled(&format!("{} ", mark(row.look)), style)
        .and(&fit(&label, (width / 3).clamp(16, 40)), Style::default());
    if width >= 80 {
        let bar = row.bar.map_or_else(|| " ".repeat(16), |share| bar(share, 16));
        line = line.and(&format!(" {bar}"), style);
    }
    let left = if row.left.is_empty() { String::new() } else { format!("{} left", row.left) };
    for part in [&row.percent, &row.counts, &row.bytes, &row.rate, &left].into_iter().filter(|part| !part.is_empty()) {
        line = line.and(&format!("  {part}"), Style::default());
    }
    if row.detail.is_empty() { line } else { line.and(&format!("  {}", row.detail), style) }
}

fn ask(canvas: &mut Canvas, question: &str) {
    let width = (question.chars().count() + 4).min(canvas.width);
    let (left, row) = ((canvas.width - width) / 2, (canvas.height / 2).saturating_sub(1));
    let style = Style { bold: true, reversed: true, ..Style::of(Colour::Yellow) };
    for (place, text) in ["", question, ""].iter().enumerate() {
        canvas.put(left, row + place, &Line::styled(&fit(&format!("  {text}"), width), style));
    }
}

#[cfg(test)]
mod tests;
