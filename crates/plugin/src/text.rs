//! Texts that plugins send: nothing in them is trusted.

/// A message longer than this is cut.
const LONGEST: usize = 1024;

/// A plugin's text as it may be shown, logged and stored: no control characters (a message may carry terminal escapes), not
/// endless.
pub fn clean(text: &str) -> String {
    bounded(text, LONGEST)
}

/// The same, at most so many characters.
pub(crate) fn bounded(text: &str, longest: usize) -> String {
    let text = text.trim();
    let shown = |c: char| if c.is_control() || is_direction(c) { ' ' } else { c };
    match text.char_indices().nth(longest) {
        Some((end, _)) => text[..end].chars().map(shown).chain(['…']).collect(),
        None => text.chars().map(shown).collect(),
    }
}

/// Characters that turn the direction of writing: they make a text read as another one.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_line_breaks_and_turned_directions_are_taken_out() {
        assert_eq!(clean(" red \u{1b}[31m\nnext\u{202e}txt \r"), "red  [31m next txt");
    }

    #[test]
    fn an_endless_text_is_cut() {
        let cut = clean(&"ä".repeat(5000));
        assert_eq!((cut.chars().count(), cut.ends_with('…')), (1025, true));
    }
}
