//! How much memory JSON takes once it is parsed: a small text can become large values.

/// Bytes of a value or a key beside its text. A `serde_json::Value` has 32, and a vector reserves up to twice its length.
const BYTES_PER_VALUE: u64 = 64;

/// An upper estimate, in bytes. The text need not be valid.
pub(crate) fn estimate_memory(text: &[u8]) -> u64 {
    let (mut values, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b',' | b':' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    text.len() as u64 + values * BYTES_PER_VALUE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_and_key_counts_and_no_text_does() {
        let values = |text: &str| (estimate_memory(text.as_bytes()) - text.len() as u64) / BYTES_PER_VALUE;
        for (text, expected) in [
            ("1", 1),
            (r#""a,b:c[{""#, 1),
            (r#""a\",\\""#, 1),
            (r#""\\","#, 2),
            ("[]", 2),
            ("[0,0,0]", 4),
            (r#"{"a":{"b":1},"c":[2]}"#, 8),
            ("[[[[", 5),
        ] {
            assert_eq!(values(text), expected, "{text}");
        }
    }
}
