//! A picture as cells: drawn on, compared with the last one, and sent to a terminal row by row.
//!
//! Our own, because all that is needed is text in eight colours; a library for this would bring thirty crates.

/// The colours that every terminal has; the reader's own theme decides how they look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Red = 1,
    Green = 2,
    Yellow = 3,
    Cyan = 6,
}

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub colour: Option<Colour>,
    pub bold: bool,
    pub dim: bool,
    pub reversed: bool,
}

impl Style {
    pub fn of(colour: Colour) -> Self {
        Self { colour: Some(colour), ..Self::default() }
    }

    pub fn bold() -> Self {
        Self { bold: true, ..Self::default() }
    }

    pub fn dim() -> Self {
        Self { dim: true, ..Self::default() }
    }

    fn codes(self) -> String {
        let flags = [(self.bold, ";1"), (self.dim, ";2"), (self.reversed, ";7")];
        let flags: String = flags.iter().filter(|(on, _)| *on).map(|(_, code)| *code).collect();
        let colour = self.colour.map(|colour| format!(";3{}", colour as u8)).unwrap_or_default();
        format!("\x1b[0{flags}{colour}m")
    }
}

/// Text in one line, each piece in its own style.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line(Vec<(char, Style)>);

impl Line {
    pub fn plain(text: &str) -> Self {
        Self::default().and(text, Style::default())
    }

    pub fn styled(text: &str, style: Style) -> Self {
        Self::default().and(text, style)
    }

    /// With more text. Control characters of foreign texts would move the cursor: they become blanks.
    pub fn and(mut self, text: &str, style: Style) -> Self {
        self.0.extend(text.chars().map(|letter| (if letter.is_control() { ' ' } else { letter }, style)));
        self
    }

    /// The same on a bar that marks it as chosen.
    pub fn chosen(mut self, width: usize) -> Self {
        self.0.resize(self.0.len().max(width), (' ', Style::default()));
        self.0.iter_mut().for_each(|(_, style)| style.reversed = true);
        self
    }

    /// In as many lines as that takes, broken at blanks where there are any.
    pub fn wrapped(&self, width: usize) -> Vec<Self> {
        let (mut lines, mut rest, width) = (Vec::new(), self.0.as_slice(), width.max(1));
        while rest.len() > width {
            let blank =
                rest[..=width].iter().rposition(|(letter, _)| *letter == ' ').filter(|place| *place > width / 3);
            let (line, more) = rest.split_at(blank.unwrap_or(width));
            lines.push(Self(line.to_vec()));
            rest = if blank.is_some() { &more[1..] } else { more };
        }
        lines.push(Self(rest.to_vec()));
        lines
    }
}

/// The picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canvas {
    pub width: usize,
    pub height: usize,
    rows: Vec<Vec<(char, Style)>>,
}

impl Canvas {
    /// An empty one.
    pub fn new(width: usize, height: usize) -> Self {
        Self { width, height, rows: vec![vec![(' ', Style::default()); width]; height] }
    }

    /// Writes a line; what does not fit is cut, with a sign that it was.
    pub fn put(&mut self, left: usize, row: usize, line: &Line) {
        let Some(cells) = self.rows.get_mut(row) else { return };
        let room = cells.len().saturating_sub(left);
        for (cell, letter) in cells.iter_mut().skip(left).zip(&line.0) {
            *cell = *letter;
        }
        if line.0.len() > room
            && let Some(last) = cells.last_mut()
        {
            last.0 = '…';
        }
    }

    /// A rule across the picture, with a title.
    pub fn rule(&mut self, row: usize, title: &str) {
        let title = if title.is_empty() { String::new() } else { format!(" {title} ") };
        let rest = self.width.saturating_sub(title.chars().count() + 1);
        self.put(
            0,
            row,
            &Line::styled("─", Style::dim()).and(&title, Style::bold()).and(&"─".repeat(rest), Style::dim()),
        );
    }

    /// What a person would read.
    #[cfg(test)]
    pub fn text(&self) -> String {
        let row = |cells: &Vec<(char, Style)>| {
            cells.iter().map(|(letter, _)| *letter).collect::<String>().trim_end().to_owned()
        };
        self.rows.iter().map(row).collect::<Vec<_>>().join("\n")
    }

    /// What a terminal must be sent to show this in place of the last one: only rows that changed, so nothing flickers.
    pub fn changes(&self, last: Option<&Canvas>) -> String {
        let last = last.filter(|last| (last.width, last.height) == (self.width, self.height));
        let mut out = if last.is_none() { "\x1b[0m\x1b[2J".to_owned() } else { String::new() };
        for (place, cells) in self.rows.iter().enumerate() {
            if last.is_none_or(|last| last.rows[place] != *cells) {
                out += &format!("\x1b[{};1H", place + 1);
                out += &drawn(cells);
            }
        }
        out
    }
}

fn drawn(cells: &[(char, Style)]) -> String {
    let mut out = String::new();
    let mut style = None;
    for (letter, wanted) in cells {
        if style != Some(*wanted) {
            out += &wanted.codes();
            style = Some(*wanted);
        }
        out.push(*letter);
    }
    out + "\x1b[0m"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_blanks_and_lose_nothing() {
        let line = Line::plain("a cause that is longer than the terminal is wide, and averyveryverylongword");
        let lines: Vec<String> =
            line.wrapped(20).iter().map(|line| line.0.iter().map(|(letter, _)| *letter).collect()).collect();
        assert_eq!(lines, ["a cause that is", "longer than the", "terminal is wide,", "and averyveryverylon", "gword"]);
    }

    #[test]
    fn only_rows_that_changed_are_sent() {
        let mut first = Canvas::new(6, 2);
        first.put(0, 0, &Line::plain("one"));
        let mut second = first.clone();
        second.put(0, 1, &Line::styled("red", Style::of(Colour::Red)));
        let whole = first.changes(None);
        assert!(whole.starts_with("\x1b[0m\x1b[2J\x1b[1;1H") && whole.contains("one   "), "{whole:?}");
        assert_eq!(second.changes(Some(&first)), "\x1b[2;1H\x1b[0;31mred\x1b[0m   \x1b[0m");
        assert_eq!(second.changes(Some(&second)), "");
        assert!(second.changes(Some(&Canvas::new(5, 2))).contains("[2J"), "another size is another picture");
    }

    #[test]
    fn what_does_not_fit_is_cut_and_nothing_moves_the_cursor() {
        let mut canvas = Canvas::new(4, 1);
        canvas.put(0, 0, &Line::plain("a\x1b[2Jb"));
        canvas.put(0, 9, &Line::plain("far below"));
        assert_eq!(canvas.text(), "a […");
    }
}
