//! Arguments, read as leniently as Kanister reads them.

use std::time::Duration;

use plimsoll_blueprint::functions::arguments::Arguments;
use serde_json::json;

fn arguments() -> Arguments {
    let all = json!({
        "text": "x", "number": 3, "words": " a  b ", "one": "only", "list": ["a", 1, true], "yes": "true", "no": false,
        "time": "1m30s", "map": { "k": 1 }, "null": null, "empty": "",
    });
    Arguments::new(all.as_object().unwrap().clone())
}

#[test]
fn strings_numbers_and_lists_are_converted() {
    let all = arguments();
    assert_eq!(all.text("number").unwrap(), "3");
    assert_eq!(all.count("number").unwrap(), 3);
    assert_eq!(all.list("one").unwrap(), ["only"]);
    assert_eq!(all.list("list").unwrap(), ["a", "1", "true"]);
    assert_eq!(all.words("words").unwrap(), ["a", "b"]);
    assert_eq!(
        (all.flag("yes", false).unwrap(), all.flag("no", true).unwrap(), all.flag("absent", true).unwrap()),
        (true, false, true)
    );
    assert_eq!(all.duration("time").unwrap(), Duration::from_secs(90));
    assert_eq!(all.map("map").unwrap()["k"], "1");
    assert_eq!(all.optional_text("empty").unwrap(), None);
}

#[test]
fn an_invalid_argument_is_an_error_with_its_name() {
    let all = arguments();
    for (error, word) in [
        (all.text("null").unwrap_err(), "invalid argument null: missing or empty"),
        (all.text("map").unwrap_err(), "invalid argument map: expected a string, found a map"),
        (all.count("text").unwrap_err(), "invalid argument text: expected a number, found \"x\""),
        (all.flag("text", true).unwrap_err(), "invalid argument text: expected true or false, found \"x\""),
        (all.duration("text").unwrap_err(), "invalid argument text: expected a duration such as 5m, found \"x\""),
        (all.map("text").unwrap_err(), "invalid argument text: expected a map, found a string"),
        (all.list("map").unwrap_err(), "invalid argument map: expected a list of strings"),
    ] {
        assert!(error.to_string().starts_with(word), "{error}");
    }
}
