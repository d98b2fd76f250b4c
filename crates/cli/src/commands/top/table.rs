//! The list of operations as a table.

use plimsoll_observe::OperationSummary as Operation;
use plimsoll_progress::Percent;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Row, Table, TableState};

use super::app::App;
use super::list::Cells;
use super::render::{bar, look_style, mark};
use super::text;

#[derive(Clone, Copy)]
enum Column {
    Mark,
    Name,
    Status,
    Progress,
    Bar,
    Done,
    Rate,
    Left,
    Age,
    What,
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Mark | Self::Bar => "",
            Self::Name => "NAME",
            Self::Status => "STATUS",
            Self::Progress => "PROGRESS",
            Self::Done => "DONE",
            Self::Rate => "RATE",
            Self::Left => "LEFT",
            Self::Age => "AGE",
            Self::What => "WHAT",
        }
    }

    fn cell(self, operation: &Operation, cells: &Cells, width: u16) -> Line<'static> {
        let coloured = |text: &str| Line::from(text::span(text, look_style(operation.look)));
        let line = match self {
            Self::Mark => coloured(mark(operation.look)),
            Self::Name => text::line(&cells.name),
            Self::Status => coloured(&cells.status),
            Self::Progress => text::line(&cells.percent).right_aligned(),
            Self::Bar => {
                let share = operation.explanation.tree.percent().map(Percent::fraction);
                coloured(&share.map(|share| bar(share, width)).unwrap_or_default())
            }
            Self::Done => text::line(&cells.done),
            Self::Rate => text::line(&cells.rate),
            Self::Left => text::line(&cells.left),
            Self::Age => text::line(&cells.age),
            Self::What => coloured(&cells.what),
        };
        text::clip(line, usize::from(width))
    }
}

/// Draws the rows around the selected one.
pub fn draw(frame: &mut Frame, area: Rect, app: &App) {
    let height = usize::from(area.height.saturating_sub(1));
    let selected = app.position().unwrap_or(0);
    // The selected row stays visible.
    let first = (selected + 1).saturating_sub(height);
    let shown = &app.lines[first..app.lines.len().min(first + height)];
    let cells: Vec<Cells> = shown.iter().map(Cells::of).collect();
    let columns = columns(area.width, &cells);
    let row = |(operation, cells): (&Operation, &Cells)| {
        columns.iter().map(|(column, width)| column.cell(operation, cells, *width)).collect::<Row>()
    };
    let title = |(column, width): &(Column, u16)| text::clip(column.title().into(), usize::from(*width));
    let header: Row = columns.iter().map(title).collect();
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    let table = Table::new(shown.iter().zip(&cells).map(row), widths)
        .header(header.style(Style::new().bold().dim()))
        .row_highlight_style(Style::new().reversed());
    let mut state = TableState::new().with_selected(selected.checked_sub(first));
    frame.render_stateful_widget(table, area, &mut state);
}

/// The columns and their widths. The least important are left out of a narrow terminal; what still does not fit is cut.
fn columns(width: u16, cells: &[Cells]) -> Vec<(Column, u16)> {
    let widest = |cell: fn(&Cells) -> &String| {
        let widest = cells.iter().map(|cells| text::width(&text::line(cell(cells)))).max();
        u16::try_from(widest.unwrap_or(0)).unwrap_or(u16::MAX)
    };
    let only_from = |min_width: u16, column: u16| if width >= min_width { column } else { 0 };
    let wanted = [
        (Column::Mark, 1),
        (Column::Name, widest(|cells| &cells.name).clamp(8, (width / 3).clamp(12, 48))),
        (Column::Status, 10),
        (Column::Progress, 8),
        (Column::Bar, only_from(130, 12)),
        (Column::Done, only_from(110, widest(|cells| &cells.done).min(26))),
        (Column::Rate, only_from(120, widest(|cells| &cells.rate).min(14))),
        (Column::Left, only_from(100, widest(|cells| &cells.left).min(18))),
        (Column::Age, only_from(60, 6)),
        (Column::What, width),
    ];
    let mut room = width;
    let mut columns = Vec::new();
    for (column, wanted) in wanted {
        let given = wanted.min(room);
        if given > 0 {
            columns.push((column, given));
            // One blank between columns.
            room = room.saturating_sub(given + 1);
        }
    }
    columns
}
