//! The frame, for whatever size the terminal has now.

use plimsoll_observe::{Explanation, Verdict};
use plimsoll_progress::view::{self, Look, Row};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Clear, Paragraph};

use super::app::{App, Prompt, View};
use super::{list, table, text};
use crate::commands::why;

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
pub fn draw(frame: &mut Frame, app: &mut App) {
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    let body = Rect { y: 1, height: area.height.saturating_sub(2), ..area };
    match app.view.clone() {
        View::List => draw_overview(frame, body, app),
        View::Tree => draw_tree(frame, body, app),
        View::Why => {
            let (title, lines) = match app.line() {
                Some(line) => (format!("why {}", line.reference), why::text(&line.explanation)),
                None => ("why".to_owned(), vec!["It no longer exists.".to_owned()]),
            };
            draw_scrolled(frame, body, &mut app.scroll, &title, wrap_all(&lines, body.width));
        }
        View::Log(log) => {
            let lines: Vec<&str> = log.lines().collect();
            draw_scrolled(frame, body, &mut app.scroll, "log", wrap_all(&lines, body.width));
        }
        View::Help => draw_scrolled(frame, body, &mut app.scroll, "help", wrap_all(&HELP, body.width)),
    }
    draw_header(frame, Rect { height: 1, ..area }, app);
    let footer = text::clip(footer(app), usize::from(area.width));
    frame.render_widget(footer, Rect { y: area.bottom() - 1, height: 1, ..area });
    if let Prompt::Cancel(reference) = &app.prompt {
        draw_question(frame, &format!("Cancel {reference}?  y: yes, any other key: no"));
    }
}

fn draw_header(frame: &mut Frame, area: Rect, app: &App) {
    let counts = list::summary(&app.lines);
    let style = Style::new().bold();
    let style = if counts.starts_with("0 stuck") { style.green() } else { style.red() };
    let title = text::span(&format!("plimsoll top  {}  ", app.namespace), Style::new().bold());
    let title = Line::from(vec![title, text::span(&counts, style)]);
    let clock = text::line(&format!("sorted by {}  {}", app.sort.word(), app.clock));
    let has_room = text::width(&title) + text::width(&clock) + 1 < usize::from(area.width);
    frame.render_widget(text::clip(title, usize::from(area.width)), area);
    if has_room {
        frame.render_widget(clock.right_aligned(), area);
    }
}

fn footer(app: &App) -> Line<'static> {
    let yellow = |message: &str| Line::from(text::span(message, Style::new().yellow()));
    match &app.prompt {
        Prompt::Filter => text::line(&format!("filter: {}▏  ⏎ keep  Esc clear", app.filter)),
        Prompt::Say(message) => yellow(message),
        _ if !app.unseen.is_empty() => {
            let unseen: Vec<_> = app.unseen.iter().map(|unseen| format!("{} ({})", unseen.what, unseen.why)).collect();
            yellow(&format!("not read: {}   {KEYS}", unseen.join(", ")))
        }
        _ if !app.filter.is_empty() => text::line(&format!("filter: {}   {KEYS}", app.filter)),
        _ => KEYS.dim().into(),
    }
}

/// The list, and below it the details of the selected operation.
fn draw_overview(frame: &mut Frame, area: Rect, app: &App) {
    let Some(selected) = app.line() else {
        let message = match (app.ready, app.filter.is_empty()) {
            (false, _) => vec!["loading …".to_owned()],
            (true, true) => list::empty_text(&app.namespace, app.server_missing.as_ref()),
            (true, false) => vec![format!("Nothing matches {:?}; Esc clears the filter.", app.filter)],
        };
        frame.render_widget(Text::from(wrap_all(&message, area.width)), area);
        return;
    };
    let details = details(&selected.explanation, area.width);
    let [above, below] = split_for_details(area, &details);
    table::draw(frame, above, app);
    draw_titled(frame, below, &selected.reference.to_string(), details);
}

/// The tree of the selected operation, and below it its details.
fn draw_tree(frame: &mut Frame, area: Rect, app: &mut App) {
    let Some(selected) = app.line() else {
        frame.render_widget(text::line("It no longer exists."), area);
        return;
    };
    let title = selected.reference.to_string();
    let details = details(&selected.explanation, area.width);
    let rows = view::rows(&selected.explanation.tree).iter().map(|row| tree_row(row, area.width)).collect();
    let [above, below] = split_for_details(area, &details);
    draw_scrolled(frame, above, &mut app.scroll, &title, rows);
    draw_titled(frame, below, "", details);
}

/// Room for the details below: what they need, but the part above keeps half, and all of a very small terminal.
fn split_for_details(area: Rect, details: &[Line]) -> [Rect; 2] {
    let max_height = if area.height < 8 { 0 } else { area.height / 2 + 1 };
    let height = u16::try_from(details.len() + 1).unwrap_or(u16::MAX).min(max_height);
    Layout::vertical([Constraint::Fill(1), Constraint::Length(height)]).areas(area)
}

/// Lines that may be more than fit. `scroll` is limited to what can be scrolled.
fn draw_scrolled(frame: &mut Frame, area: Rect, scroll: &mut usize, title: &str, mut lines: Vec<Line<'static>>) {
    let height = usize::from(area.height.saturating_sub(1));
    *scroll = (*scroll).min(lines.len().saturating_sub(height));
    lines.drain(..*scroll);
    draw_titled(frame, area, title, lines);
}

/// A rule with a title, and lines below it.
fn draw_titled(frame: &mut Frame, area: Rect, title: &str, lines: Vec<Line<'static>>) {
    let mut rule = Line::from("─".dim());
    if !title.is_empty() {
        rule.push_span(text::span(&format!(" {title} "), Style::new().bold().not_dim()));
    }
    let rule = text::clip(rule, usize::from(area.width));
    let block = Block::new().borders(Borders::TOP).border_style(Style::new().dim()).title(rule);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn wrap_all<T: AsRef<str>>(lines: &[T], width: u16) -> Vec<Line<'static>> {
    lines.iter().flat_map(|line| text::wrap(&text::line(line.as_ref()), usize::from(width))).collect()
}

/// The details of one operation: headline, causes, next commands.
fn details(explanation: &Explanation, width: u16) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(text::span(&explanation.headline, Style::new().bold()))];
    for cause in explanation.causes.iter().take(3) {
        let is_expected = cause.expected || explanation.verdict == Verdict::Moving;
        let style = if is_expected { Style::new().yellow() } else { Style::new().red() };
        let word = text::span(&format!("{:7}", why::word(cause)), Style::new().dim());
        lines.push(Line::from(vec![word, text::span(&cause.text, style)]));
        let next = cause.next.first().map(|next| Line::from(vec!["next   ".dim(), text::span(next, Style::new())]));
        lines.extend(next);
    }
    lines.iter().flat_map(|line| text::wrap(line, usize::from(width))).collect()
}

fn tree_row(row: &Row, width: u16) -> Line<'static> {
    let style = look_style(row.look);
    let label = text::line(&format!("{}{}", "  ".repeat(row.depth), row.label));
    let mut line = Line::from(text::span(&format!("{} ", mark(row.look)), style));
    line.extend(text::fit(label, usize::from((width / 3).clamp(16, 40))));
    if width >= 80 {
        let bar = row.bar.map_or_else(|| " ".repeat(16), |share| bar(share, 16));
        line.push_span(text::span(&format!(" {bar}"), style));
    }
    let left = if row.left.is_empty() { String::new() } else { format!("{} left", row.left) };
    for part in [&row.percent, &row.counts, &row.bytes, &row.rate, &left].into_iter().filter(|part| !part.is_empty()) {
        line.push_span(text::span(&format!("  {part}"), Style::new()));
    }
    if !row.detail.is_empty() {
        line.push_span(text::span(&format!("  {}", row.detail), style));
    }
    text::clip(line, usize::from(width))
}

/// The sign before a row.
pub fn mark(look: Look) -> &'static str {
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

/// The colours that every terminal has; the theme of the terminal decides how they look.
pub fn look_style(look: Look) -> Style {
    match look {
        Look::Stalled => Style::new().red().bold(),
        Look::Failed | Look::Interrupted => Style::new().red(),
        Look::Waiting | Look::TakenOver | Look::Quiet | Look::Cancelled | Look::Skipped => Style::new().yellow(),
        Look::Running => Style::new().cyan(),
        Look::Done => Style::new().green(),
        Look::Pending | Look::Unknown => Style::new(),
    }
}

/// A progress bar as text.
pub fn bar(share: f64, width: u16) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and width")]
    let full = (share.clamp(0.0, 1.0) * f64::from(width)) as usize;
    "█".repeat(full) + &"░".repeat(usize::from(width) - full)
}

fn draw_question(frame: &mut Frame, question: &str) {
    let screen = frame.area();
    let question = text::line(&format!("  {question}  "));
    let width = u16::try_from(text::width(&question)).unwrap_or(u16::MAX).min(screen.width);
    let (x, y) = ((screen.width - width) / 2, (screen.height / 2).saturating_sub(1));
    let area = Rect::new(x, y, width, 3).intersection(screen);
    let lines = vec![Line::default(), text::clip(question, usize::from(width))];
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).style(Style::new().yellow().bold().reversed()), area);
}

#[cfg(test)]
mod tests;
