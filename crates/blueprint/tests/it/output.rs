//! What commands print among what they print for people.

use std::collections::BTreeMap;

use plimsoll_blueprint::output::{
    Line, MAX_OUTPUT_LINE_LENGTH, OUTPUT_MARKER, OutputError, OutputReader, PROGRESS_MARKER,
};
use proptest::prelude::*;

/// The result of reading a text in chunks of these sizes.
fn read(text: &[u8], sizes: &[usize]) -> Result<(Vec<Line>, BTreeMap<String, String>), OutputError> {
    let (mut reader, mut lines, mut rest) = (OutputReader::default(), Vec::new(), text);
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = sizes.next().copied().unwrap_or(rest.len()).clamp(1, rest.len());
        lines.extend(reader.push(&rest[..size])?);
        rest = &rest[size..];
    }
    let (last, outputs) = reader.finish()?;
    lines.extend(last);
    Ok((lines, outputs))
}

fn output(key: &str, value: &str) -> String {
    format!("{OUTPUT_MARKER} {}\n", serde_json::json!({ "key": key, "value": value }))
}

#[test]
fn an_output_may_follow_log_text_and_the_last_value_of_a_key_counts() {
    let text = format!("dumping {}{}plain\n\n{}", output("a", "1"), output("b", "ä \" \n"), output("a", "2"));
    let (lines, outputs) = read(text.as_bytes(), &[usize::MAX]).unwrap();
    assert_eq!(lines, [Line::Log("dumping".into()), Line::Log("plain".into())]);
    assert_eq!(outputs, BTreeMap::from([("a".into(), "2".into()), ("b".into(), "ä \" \n".into())]));
}

#[test]
fn a_progress_frame_is_not_an_output() {
    let (lines, outputs) = read(format!("x{PROGRESS_MARKER}{{\"version\":1}}\n").as_bytes(), &[3]).unwrap();
    assert_eq!(lines, [Line::Log("x".into()), Line::Progress("{\"version\":1}".into())]);
    assert!(outputs.is_empty());
}

#[test]
fn invalid_json_is_an_error_that_shows_its_start() {
    for content in
        ["nonsense", "{\"key\":\"a\"}", "{\"key\":\"a\",\"value\":1}", "[]", "{\"key\":\"a\",\"value\":\"x\"} rest"]
    {
        let error = read(format!("{OUTPUT_MARKER} {content}\n").as_bytes(), &[7]).unwrap_err();
        assert_eq!(error.reason(), "OutputMalformed", "{content}");
        assert!(error.to_string().contains(&content[..2].replace('"', "\\\"")), "{error}");
    }
}

#[test]
fn a_huge_output_is_an_error() {
    let error = read(output("big", &"x".repeat(3 << 20)).as_bytes(), &[64 << 10]).unwrap_err();
    assert!(matches!(error, OutputError::TooLong { limit: MAX_OUTPUT_LINE_LENGTH, .. }), "{error}");
    assert!(error.to_string().len() < 400, "{error}");
    let many: String = (0..5).map(|n| output(&n.to_string(), &"x".repeat(200 << 10))).collect();
    assert_eq!(read(many.as_bytes(), &[64 << 10]).unwrap_err().reason(), "OutputTooLong");
}

#[test]
fn a_huge_line_is_shortened_and_the_next_output_is_found() {
    let text = format!("{}{}next\n", "y".repeat(5 << 20), output("k", "v"));
    let (lines, outputs) = read(text.as_bytes(), &[40_000]).unwrap();
    assert_eq!(outputs["k"], "v");
    let Line::Log(first) = &lines[0] else { panic!("{lines:?}") };
    assert!(first.len() < 20_000 && first.contains("bytes omitted"), "{}", first.len());
    assert_eq!(lines[1], Line::Log("next".into()));
}

#[test]
fn invalid_utf_8_is_not_an_error() {
    let text = [b"\xff\xfe\n".as_slice(), output("k", "v").as_bytes(), b"\x80"].concat();
    assert_eq!(read(&text, &[1]).unwrap().1["k"], "v");
}

proptest! {
    #[test]
    fn chunk_boundaries_do_not_matter(
        pairs in prop::collection::vec(("[a-z]{1,6}", ".{0,40}"), 0..8),
        noise in prop::collection::vec("[^\n#]{0,60}", 0..8),
        sizes in prop::collection::vec(1_usize..50, 1..6),
    ) {
        let mut text = String::new();
        for index in 0..pairs.len().max(noise.len()) {
            text += noise.get(index).map_or("", String::as_str);
            text += &pairs.get(index).map_or("\n".into(), |(key, value)| output(key, value));
        }
        prop_assert_eq!(read(text.as_bytes(), &sizes).unwrap(), read(text.as_bytes(), &[usize::MAX]).unwrap());
        let expected: BTreeMap<_, _> = pairs.into_iter().collect();
        prop_assert_eq!(read(text.as_bytes(), &sizes).unwrap().1, expected);
    }
}
