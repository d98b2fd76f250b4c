//! File names in trees: bytes quoted as Go quotes strings, so that any name survives JSON.

use super::printable::is_printable;

/// Appends the quoted form, without the outer quotes.
pub fn quote(name: &[u8], out: &mut String) {
    for piece in name.utf8_chunks() {
        piece.valid().chars().for_each(|character| quote_character(character, out));
        piece.invalid().iter().for_each(|byte| push_hex_escape(u32::from(*byte), 'x', 2, out));
    }
}

fn quote_character(character: char, out: &mut String) {
    match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x0b' => out.push_str("\\v"),
        ' '..='~' => out.push(character),
        '\0'..='\x7f' => push_hex_escape(u32::from(character), 'x', 2, out),
        _ if is_printable(character) => out.push(character),
        '\u{80}'..='\u{ffff}' => push_hex_escape(u32::from(character), 'u', 4, out),
        _ => push_hex_escape(u32::from(character), 'U', 8, out),
    }
}

fn push_hex_escape(value: u32, letter: char, width: usize, out: &mut String) {
    use std::fmt::Write as _;
    let _ = write!(out, "\\{letter}{value:0width$x}");
}

/// The bytes behind a quoted name; `None` if it is not one.
pub fn unquote(quoted: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(quoted.len());
    let mut rest = quoted;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = unescape(&rest[at + 1..], &mut out)?;
    }
    out.extend_from_slice(rest.as_bytes());
    Some(out)
}

fn unescape<'a>(rest: &'a str, out: &mut Vec<u8>) -> Option<&'a str> {
    let letter = rest.bytes().next()?;
    let plain = match letter {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'\\' | b'"' | b'\'' => letter,
        b'x' => return unescape_number(rest, 2, out),
        b'u' => return unescape_number(rest, 4, out),
        b'U' => return unescape_number(rest, 8, out),
        b'0'..=b'7' => return unescape_octal(rest, out),
        _ => return None,
    };
    out.push(plain);
    Some(&rest[1..])
}

fn unescape_number<'a>(rest: &'a str, width: usize, out: &mut Vec<u8>) -> Option<&'a str> {
    let digits = rest.get(1..=width)?;
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let value = u32::from_str_radix(digits, 16).ok()?;
    if width == 2 {
        out.push(u8::try_from(value).ok()?);
    } else {
        let mut buffer = [0; 4];
        out.extend_from_slice(char::from_u32(value)?.encode_utf8(&mut buffer).as_bytes());
    }
    Some(&rest[1 + width..])
}

fn unescape_octal<'a>(rest: &'a str, out: &mut Vec<u8>) -> Option<&'a str> {
    let digits = rest.get(..3)?;
    out.push(u8::from_str_radix(digits, 8).ok()?);
    Some(&rest[3..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_quoted_as_known() {
        let mut out = String::new();
        quote(b"a\"b\\c<&>\x7f\xff\xc2\xa0\xc3\xa9\xe2\x80\xa8\x01\x07\xf3\xa0\x80\x81e\xcc\x81", &mut out);
        assert_eq!(out, "a\\\"b\\\\c<&>\\x7f\\xff\\u00a0é\\u2028\\x01\\a\\U000e0001e\u{301}");
    }

    proptest! {
        #[test]
        fn every_name_survives_quoting(name in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut quoted = String::new();
            quote(&name, &mut quoted);
            prop_assert_eq!(unquote(&quoted), Some(name));
        }

        #[test]
        fn no_text_makes_unquoting_panic(text in "\\PC*") {
            let _ = unquote(&text);
        }
    }
}
