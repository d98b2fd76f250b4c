//! Text measured in columns of the terminal: a CJK character or an emoji takes two.
//!
//! ratatui cuts what is too wide without a sign, and scrolls by at most 65535 lines: a wrapped log can have more.

use ratatui::buffer::CellWidth;
use ratatui::style::Style;
use ratatui::text::{Line, Span, StyledGrapheme};

/// Text in one style. ratatui drops control characters, which would join the words of a text that has line breaks or tabs: they
/// become blanks.
pub fn span(text: &str, style: Style) -> Span<'static> {
    Span::styled(text.replace(char::is_control, " "), style)
}

/// Text in the default style.
pub fn line(text: &str) -> Line<'static> {
    Line::from(span(text, Style::new()))
}

/// The number of columns that a line takes.
pub fn width(line: &Line<'_>) -> usize {
    line.styled_graphemes(Style::new()).map(|grapheme| columns(&grapheme)).sum()
}

/// Cuts a line that is wider than `max_width`; its last column then shows an ellipsis.
pub fn clip(line: Line<'static>, max_width: usize) -> Line<'static> {
    if width(&line) <= max_width {
        return line;
    }
    let graphemes: Vec<_> = line.styled_graphemes(Style::new()).collect();
    let kept = count_fitting(&graphemes, max_width.saturating_sub(1));
    let mut clipped = join(&graphemes[..kept]);
    if max_width > 0 {
        clipped.push_span(Span::styled("…", graphemes[kept].style));
    }
    clipped
}

/// A line that takes exactly so many columns: cut, or filled with blanks.
pub fn fit(line: Line<'static>, exact_width: usize) -> Line<'static> {
    let mut line = clip(line, exact_width);
    let missing = exact_width.saturating_sub(width(&line));
    line.push_span(" ".repeat(missing));
    line
}

/// Breaks a line into lines of at most `max_width` columns, at blanks where there are any.
pub fn wrap(line: &Line<'_>, max_width: usize) -> Vec<Line<'static>> {
    let graphemes: Vec<_> = line.styled_graphemes(Style::new()).collect();
    let (mut lines, mut rest) = (Vec::new(), graphemes.as_slice());
    loop {
        // At least one: a wide character never fits in one column.
        let fitting = count_fitting(rest, max_width).max(1);
        if fitting >= rest.len() {
            lines.push(join(rest));
            return lines;
        }
        let blank = rest[..=fitting].iter().rposition(|grapheme| grapheme.symbol == " ");
        // A blank near the start would leave most of the line empty.
        let blank = blank.filter(|place| *place > fitting / 3);
        lines.push(join(&rest[..blank.unwrap_or(fitting)]));
        rest = &rest[blank.map_or(fitting, |place| place + 1)..];
    }
}

fn columns(grapheme: &StyledGrapheme<'_>) -> usize {
    usize::from(grapheme.symbol.cell_width())
}

/// How many of these fit into so many columns.
fn count_fitting(graphemes: &[StyledGrapheme<'_>], max_width: usize) -> usize {
    let mut used = 0;
    let fits = |grapheme: &&StyledGrapheme<'_>| {
        used += columns(grapheme);
        used <= max_width
    };
    graphemes.iter().take_while(fits).count()
}

/// One span for each run of the same style.
fn join(graphemes: &[StyledGrapheme<'_>]) -> Line<'static> {
    let runs = graphemes.chunk_by(|left, right| left.style == right.style);
    let span = |run: &[StyledGrapheme<'_>]| {
        Span::styled(run.iter().map(|grapheme| grapheme.symbol).collect::<String>(), run[0].style)
    };
    runs.map(span).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::style::Stylize;

    use super::*;

    fn wrapped(text: &str, max_width: usize) -> Vec<String> {
        wrap(&line(text), max_width).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_are_broken_at_blanks_and_lose_no_text() {
        let text = "a cause that is longer than the terminal is wide, and averyveryverylongword";
        let expected = ["a cause that is", "longer than the", "terminal is wide,", "and averyveryverylon", "gword"];
        assert_eq!(wrapped(text, 20), expected);
        assert_eq!(wrapped("", 20), [""]);
    }

    #[test]
    fn wide_characters_count_as_two_columns() {
        assert_eq!(width(&line("数据库💾")), 8);
        assert_eq!(wrapped("数据库备份", 5), ["数据", "库备", "份"]);
        assert_eq!(wrapped("数据", 1), ["数", "据"], "wider than the terminal: one on each line");
        assert_eq!(clip(line("数据库备份"), 6).to_string(), "数据…", "the ellipsis does not split a character");
        assert_eq!(clip(line("数据库"), 6).to_string(), "数据库");
        assert_eq!(fit(line("数据库备份"), 6).to_string(), "数据… ");
        assert_eq!(fit(line("数据"), 6).to_string(), "数据  ");
    }

    #[test]
    fn a_line_without_room_is_empty() {
        assert_eq!(clip(line("text"), 0).to_string(), "");
        assert_eq!(clip(line("text"), 1).to_string(), "…");
    }

    #[test]
    fn styles_survive_wrapping_and_clipping() {
        let two = Line::from(vec![span("red text ", Style::new().red()), span("plain text", Style::new())]);
        let lines = wrap(&two, 10);
        assert_eq!(lines, [Line::from("red text".red()), Line::from("plain text")]);
        let clipped = clip(two, 11);
        assert_eq!(clipped, Line::from(vec!["red text ".red(), "p".into(), "…".into()]));
    }

    #[test]
    fn control_characters_become_blanks() {
        assert_eq!(line("a\x1b[2J\tb\nc").to_string(), "a [2J b c");
    }
}
