//! Sanitizes untrusted text from plugins.

/// Maximum length of a message.
const MAX_LENGTH: usize = 1024;

/// Removes control characters, such as terminal escapes, and limits the length.
pub fn sanitize(text: &str) -> String {
    sanitize_to(text, MAX_LENGTH)
}

/// As [`sanitize`], with the given maximum length.
pub(crate) fn sanitize_to(text: &str, max_length: usize) -> String {
    let text = text.trim();
    let shown = |c: char| if c.is_control() || is_direction_control(c) { ' ' } else { c };
    match text.char_indices().nth(max_length) {
        Some((end, _)) => text[..end].chars().map(shown).chain(['…']).collect(),
        None => text.chars().map(shown).collect(),
    }
}

/// Characters that change the writing direction and can disguise text.
fn is_direction_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_line_breaks_and_direction_controls_are_removed() {
        assert_eq!(sanitize(" red \u{1b}[31m\nnext\u{202e}txt \r"), "red  [31m next txt");
    }

    #[test]
    fn a_long_text_is_truncated() {
        let text = sanitize(&"ä".repeat(5000));
        assert_eq!((text.chars().count(), text.ends_with('…')), (1025, true));
    }
}
