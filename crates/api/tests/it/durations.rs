//! Durations in Go's notation.

use plimsoll_api::go::GoDuration;
use proptest::prelude::*;

#[test]
fn durations_are_written_as_go_writes_them() {
    const CASES: &[(&str, &str)] = &[
        ("0", "0s"),
        ("4h", "4h0m0s"),
        ("720h", "720h0m0s"),
        ("90m", "1h30m0s"),
        ("1m", "1m0s"),
        ("1.5s", "1.5s"),
        ("1h0.5s", "1h0m0.5s"),
        ("-2m3.4s", "-2m3.4s"),
        ("+5s", "5s"),
        (".5h", "30m0s"),
        ("1.h", "1h0m0s"),
        ("100ms", "100ms"),
        ("1500us", "1.5ms"),
        ("7\u{3bc}s", "7\u{b5}s"),
        ("7\u{b5}s", "7\u{b5}s"),
        ("12ns", "12ns"),
        ("0.3333333333333333333h", "20m0s"),
        ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
        ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
    ];
    for (text, written) in CASES {
        assert_eq!(text.parse::<GoDuration>().unwrap().to_string(), *written, "{text}");
    }
}

#[test]
fn invalid_durations_are_rejected_with_a_cause() {
    let texts = [
        "",
        "-",
        "3",
        "1d",
        "h",
        ".s",
        "1..5s",
        "1.2.3s",
        "4 h",
        "4h ",
        "2562047h47m16.854775808s",
        "-9223372036854775809ns",
    ];
    let errors: Vec<String> = texts.iter().map(|text| text.parse::<GoDuration>().unwrap_err().to_string()).collect();
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn an_invalid_duration_is_preserved_and_has_no_value() {
    let duration: GoDuration = serde_json::from_str("\"soon\"").unwrap();
    assert_eq!(duration.as_std(), None);
    assert_eq!(serde_json::to_string(&duration).unwrap(), "\"soon\"");
}

#[test]
fn a_negative_duration_has_no_standard_value() {
    assert_eq!("-1h".parse::<GoDuration>().unwrap().as_std(), None);
}

proptest! {
    #[test]
    fn every_duration_reads_back_as_it_was(nanoseconds: i64) {
        let duration = GoDuration::from_nanos(nanoseconds);
        prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap(), duration);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[-+.0-9a-zµ ]{0,24}") {
        let _ = text.parse::<GoDuration>();
    }
}
