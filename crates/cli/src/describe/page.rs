//! Text in sections: `Label:  value`, aligned within a section, a blank line between sections.

use std::fmt::Display;

/// A page of sections.
#[derive(Default)]
pub struct Page(Vec<Section>);

/// Lines that belong together.
#[derive(Default)]
pub struct Section(Vec<Entry>);

enum Entry {
    Field { depth: usize, label: String, value: String },
    Line { depth: usize, text: String },
}

impl Page {
    /// Adds a section, unless it stays empty.
    pub fn section(&mut self, fill: impl FnOnce(&mut Section)) {
        let mut section = Section::default();
        fill(&mut section);
        if !section.0.is_empty() {
            self.0.push(section);
        }
    }

    /// All lines.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for section in &self.0 {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.extend(section.lines());
        }
        lines
    }
}

impl Section {
    /// `Label:  value`.
    pub fn field(&mut self, label: &str, value: impl Display) {
        self.field_at(0, label, value);
    }

    /// The same, indented.
    pub fn field_at(&mut self, depth: usize, label: &str, value: impl Display) {
        self.0.push(Entry::Field { depth, label: format!("{label}:"), value: format!("{value}") });
    }

    /// A field, if there is a value.
    pub fn some(&mut self, label: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.field(label, value);
        }
    }

    /// A line as it is, indented.
    pub fn line_at(&mut self, depth: usize, text: impl Into<String>) {
        self.0.push(Entry::Line { depth, text: text.into() });
    }

    /// A heading with lines below it, if there are any.
    pub fn block(&mut self, heading: &str, lines: impl IntoIterator<Item = String>) {
        let mut lines = lines.into_iter().peekable();
        if lines.peek().is_some() {
            self.line_at(0, format!("{heading}:"));
            lines.for_each(|line| self.line_at(1, line));
        }
    }

    fn lines(&self) -> Vec<String> {
        let width = |wanted: usize| {
            let labels = self.0.iter().filter_map(|entry| match entry {
                Entry::Field { depth, label, .. } if *depth == wanted => Some(label.chars().count()),
                _ => None,
            });
            labels.max().unwrap_or(0)
        };
        let line = |entry: &Entry| match entry {
            Entry::Field { depth, label, value } => {
                let (indent, width) = ("  ".repeat(*depth), width(*depth));
                // What has several lines stays under its own first one.
                let value = value.replace('\n', &format!("\n{}", " ".repeat(indent.len() + width + 2)));
                format!("{indent}{label:width$}  {value}").trim_end().to_owned()
            }
            Entry::Line { depth, text } => format!("{}{text}", "  ".repeat(*depth)),
        };
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_aligned_within_a_section_and_depth() {
        let mut page = Page::default();
        page.section(|section| {
            section.field("Name", "x");
            section.field("Namespace", "y");
        });
        page.section(|_| {});
        page.section(|section| {
            section.line_at(0, "Resources:");
            section.field_at(1, "Included", "*");
            section.field_at(1, "Excluded", "one\ntwo");
        });
        assert_eq!(
            page.lines().join("\n"),
            "Name:       x\nNamespace:  y\n\nResources:\n  Included:  *\n  Excluded:  one\n             two"
        );
    }
}
