use std::collections::BTreeMap;

use plimsoll_select::labels::{LabelSelector, Selector, parse};
use proptest::prelude::*;
use serde_json::{Value, json};

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn selectors_match_as_the_api_server_does() {
    let labels = labels(&[("app", "web"), ("tier", "front"), ("version", "7"), ("empty", "")]);
    for (text, expected) in [
        ("", true),
        ("app", true),
        ("nope", false),
        ("!app", false),
        ("!nope", true),
        ("app=web", true),
        ("app==web", true),
        ("app = web", true),
        ("app=db", false),
        ("app!=db", true),
        ("nope!=db", true),
        ("app!=web", false),
        ("app in (web, db)", true),
        ("app in (db)", false),
        ("app notin (db)", true),
        ("nope notin (db)", true),
        ("app notin (web,db)", false),
        ("app=web,tier=front", true),
        ("app=web,tier=back", false),
        ("empty=", true),
        ("empty=,app", true),
        ("empty in ()", true),
        ("empty in (,x)", true),
        ("version>6", true),
        ("version>7", false),
        ("version<8", true),
        ("app>1", false),
        ("nope<1", false),
        ("in in (in)", false),
    ] {
        assert_eq!(Selector::parse(text).unwrap().matches(&labels), expected, "{text}");
    }
}

#[test]
fn an_invalid_selector_names_the_invalid_part() {
    for (text, part) in [
        (",", ","),
        ("app=web,", "app=web,"),
        ("app web", "web"),
        ("app in web", "app"),
        ("app in (web", "app in (web"),
        ("app=a=b", "="),
        ("=web", "="),
        ("!", "!"),
        ("app=bad_value_", "bad_value_"),
        ("-app=x", "-app"),
        ("a/b/c=x", "a/b/c"),
        ("Up.per/x=y", "Up.per/x"),
        ("app>x", "x"),
        ("app=(x)", "("),
    ] {
        let error = Selector::parse(text).unwrap_err();
        assert!(error.to_string().contains(&format!("at {part:?}:")), "{text}: {error}");
        assert_eq!(error.reason(), "InvalidLabelSelector");
    }
}

#[test]
fn text_parses_into_the_selector_of_a_spec() {
    for (text, expected) in [
        ("", json!({})),
        ("app=web", json!({"matchLabels": {"app": "web"}})),
        ("a=1,b==2", json!({"matchLabels": {"a": "1", "b": "2"}})),
        (
            "app=web,tier in (a,b),!old,x,y!=z,v notin (q)",
            json!({"matchLabels": {"app": "web"}, "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "old", "operator": "DoesNotExist"},
                {"key": "x", "operator": "Exists"},
                {"key": "y", "operator": "NotIn", "values": ["z"]},
                {"key": "v", "operator": "NotIn", "values": ["q"]},
            ]}),
        ),
    ] {
        assert_eq!(serde_json::to_value(parse(text).unwrap()).unwrap(), expected, "{text}");
    }
    assert!(parse("a>1").is_err());
}

#[test]
fn expressions_of_a_spec_are_validated() {
    let selector = |value: Value| -> LabelSelector { serde_json::from_value(value).unwrap() };
    for (expression, good) in [
        (json!({"key": "a", "operator": "In", "values": ["x"]}), true),
        (json!({"key": "a", "operator": "In"}), false),
        (json!({"key": "a", "operator": "NotIn", "values": []}), false),
        (json!({"key": "a", "operator": "Exists", "values": ["x"]}), false),
        (json!({"key": "a", "operator": "Exists", "values": []}), true),
        (json!({"key": "a", "operator": "DoesNotExist"}), true),
        (json!({"key": "a", "operator": "Gt", "values": ["1"]}), false),
        (json!({"key": "a b", "operator": "Exists"}), false),
    ] {
        let compiled = Selector::new(&selector(json!({"matchExpressions": [expression.clone()]})));
        assert_eq!(compiled.is_ok(), good, "{expression}");
    }
    let labels = json!({"app": "web"});
    assert!(Selector::new(&selector(json!({"matchLabels": {"app": "web"}}))).unwrap().matches(&labels));
    assert!(Selector::new(&selector(json!({}))).unwrap().matches(&()));
}

proptest! {
    #[test]
    fn any_text_parses_or_is_an_error_and_both_forms_agree(text in "[a-c!=,() inot]{0,24}", value in prop::option::of("[a-c]")) {
        let labels: BTreeMap<String, String> = value.into_iter().map(|v| ("a".to_owned(), v)).collect();
        if let (Ok(direct), Ok(spec)) = (Selector::parse(&text), parse(&text)) {
            let compiled = Selector::new(&spec).unwrap();
            prop_assert_eq!(direct.matches(&labels), compiled.matches(&labels));
        }
    }
}
