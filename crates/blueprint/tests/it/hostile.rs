//! A template that means harm ends with an error, soon, and takes nothing with it.

use plimsoll_blueprint::template::{Error, Template, render_value};
use proptest::prelude::*;
use serde_json::{Value, json};

fn render(source: &str) -> Result<String, Error> {
    Template::parse("hostile", source)?.render(&json!({"Options": {"k": "v"}, "Object": {"spec": {"list": [1, 2, 3]}}}))
}

fn reason(source: &str) -> &'static str {
    render(source).map_or_else(|error| error.reason(), |_| "rendered")
}

#[test]
fn exceeding_a_limit_is_an_error() {
    let nested_ranges = "{{ range until 1000 }}".repeat(3) + &"{{ end }}".repeat(3);
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000));
    let blocks = "{{ if true }}".repeat(5000) + &"{{ end }}".repeat(5000);
    let doubled = "{{ $l := list 1 }}{{ range until 60 }}{{ $l = list $l $l }}{{ end }}{{ $l }}";
    let equal = "{{ $l := list }}{{ range until 60 }}{{ $l = list $l $l }}{{ end }}{{ deepEqual $l $l }}";
    let list_chain = "{{ $l := list }}{{ range until 5000 }}{{ $l = list $l }}{{ end }}";
    let sources = [
        r#"{{ define "t" }}{{ template "t" . }}{{ end }}{{ template "t" . }}"#,
        r#"{{ define "t" }}x{{ template "t" . }}{{ template "t" . }}{{ end }}{{ template "t" . }}"#,
        r#"{{ repeat 1000000000 "xxxxxxxx" }}"#,
        r#"{{ $s := "x" }}{{ range until 40 }}{{ $s = print $s $s }}{{ end }}{{ $s | len }}"#,
        "{{ until 9223372036854775807 }}",
        "{{ untilStep 0 9223372036854775807 3 }}",
        "{{ range 9223372036854775807 }}{{ end }}",
        r#"{{ indent 900000000 "a\nb" }}"#,
        r#"{{ $f := repeat 400 "%1000000[1]d" }}{{ printf $f 1 }}"#,
        r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ $d }}"#,
        r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ toJson $d }}"#,
        r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ deepCopy $d }}"#,
        r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ deepEqual $d (deepCopy (dict "d" $d)) }}"#,
        r#"{{ $d := dict }}{{ $_ := set $d "d" $d }}{{ merge $d $d }}"#,
        r#"{{ $s := repeat 4000000 "a" }}{{ replace "a" (repeat 4000 "b") $s }}"#,
        r#"{{ $s := repeat 40000 "ab" }}{{ regexReplaceAll "a" $s (repeat 4000 "$0") }}"#,
        r#"{{ join (repeat 10000 "x") (splitList "" (repeat 10000 "y")) }}"#,
        "{{ randAlpha 900000000 }}",
        &nested_ranges,
        &deep,
        &blocks,
        doubled,
        equal,
        list_chain,
    ];
    for source in sources {
        assert_eq!(reason(source), "TemplateTooLarge", "{}", &source[..source.len().min(120)]);
    }
    assert_eq!(reason(&"x".repeat(2 << 20)), "TemplateTooLarge");
}

#[test]
fn a_long_chain_of_maps_is_freed_without_recursion() {
    let chain = r#"{{ $top := dict }}{{ $first := $top }}{{ range until 20000 }}{{ $new := dict }}{{ $_ := set $top "n" $new }}{{ $top = $new }}{{ end }}ok"#;
    assert_eq!(render(chain).unwrap(), "ok");
}

#[test]
fn functions_with_side_effects_are_errors() {
    for function in ["env", "expandenv", "getHostByName", "derivePassword", "genPrivateKey", "genCA", "call"] {
        let error = Template::parse("t", &format!("{{{{ {function} \"PATH\" }}}}")).unwrap_err();
        assert_eq!(error.reason(), "TemplateFunctionRefused", "{function}");
        assert!(error.to_string().contains(function), "{error}");
    }
}

#[test]
fn errors_do_not_contain_values() {
    let params = json!({
        "Profile": {"Credential": {"KeyPair": {"ID": "id", "Secret": "hunter2"}}},
        "Secrets": {"s": {"data": {"password": "aHVudGVyMg=="}}},
    });
    let sources = [
        "{{ .Profile.Credential.KeyPair.Secret.x }}",
        "{{ index .Secrets.s.Data.password \"x\" }}",
        "{{ .Profile.Credential.KeyPair.Secret | until }}",
        "{{ .Secrets.s.Data.password.x }}",
        "{{ range .Profile.Credential.KeyPair.Secret }}{{ end }}",
        "{{ index .Profile.Credential.KeyPair.Secret 99 }}",
        "{{ regexFind .Profile.Credential.KeyPair.Secret 1 }}",
    ];
    for source in sources {
        let error = Template::parse("t", source).unwrap().render(&params).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn all_strings_of_a_value_are_rendered() {
    let params = json!({"Options": {"k": "v"}});
    let arguments =
        json!({"a": "{{ .Options.k }}", "{{ .Options.k }}": ["x{{ 1 }}", 2, true, {"n": "{{ 1 | add 1 }}"}]});
    assert_eq!(render_value(&arguments, &params).unwrap(), json!({"a": "v", "v": ["x1", 2, true, {"n": "2"}]}));
    let failing = render_value(&json!({"list": ["ok", "{{ .Options.none }}"]}), &params).unwrap_err();
    assert_eq!(failing.to_string(), r#"template list[1]:1: "none" not found"#);
}

/// Pieces of templates, in any order.
fn fragments() -> impl Strategy<Value = String> {
    let words = [
        "{{",
        "}}",
        "{{-",
        "-}}",
        " ",
        ".",
        ".a",
        ".Options.k",
        "$",
        "$x",
        ":=",
        "=",
        "|",
        "(",
        ")",
        ",",
        "if",
        "else",
        "end",
        "range",
        "with",
        "define",
        "template",
        "block",
        "break",
        "continue",
        "\"",
        "\"t\"",
        "`",
        "'",
        "'a'",
        "1",
        "-1",
        "1.5",
        "0x",
        "1e9",
        "nil",
        "true",
        "and",
        "or",
        "not",
        "eq",
        "lt",
        "len",
        "index",
        "printf",
        "\"%d%s%*v\"",
        "list",
        "dict",
        "set",
        "first",
        "slice",
        "splitn",
        "substr",
        "trunc",
        "abbrev",
        "wrap",
        "untilStep",
        "until",
        "toJson",
        "date",
        "toDate",
        "\"2006-01-02\"",
        "semverCompare",
        "regexSplit",
        "b64dec",
        "b32dec",
        "urlParse",
        "round",
        "div",
        "é",
        "\n",
        "/*",
        "*/",
        "\\",
        "9223372036854775807",
        "-9223372036854775808",
        "merge",
        "html",
        "js",
        "quote",
        "snakecase",
        "camelcase",
        "initial",
        "rest",
        "replace",
        "\"\"",
        "abbrevboth",
        "repeat",
        "indent",
        "title",
    ];
    proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..40).prop_map(|words| words.join(" "))
}

/// One call of any function with any arguments.
fn calls() -> impl Strategy<Value = String> {
    let functions = include_str!("functions.txt").split_whitespace().collect::<Vec<_>>();
    let arguments = [
        "1",
        "-1",
        "0",
        "3",
        "9223372036854775807",
        "-9223372036854775808",
        "1.5",
        "-0.5",
        "1e308",
        "\"\"",
        "\"abc\"",
        "\"é☺\"",
        "\"2006-01-02T15:04:05Z07:00\"",
        "\"\\xff\\xfe\"",
        "\"%v%[9]d%.*f\"",
        "true",
        "nil",
        "(list 1 \"a\" nil)",
        "(list)",
        "(dict \"a\" 1)",
        "(dict)",
        "(now)",
        ".Options",
        ".Object",
        ".Object.spec.list",
        "\"1.2.x\"",
        "\",\"",
        "(index .Object.spec.list 0)",
        "(semver \"1.2.3\")",
        "\"[a-z]*\"",
        "\"https://a:b@c:1/d?e#f\"",
        "\"!!==\"",
        "'x'",
    ];
    let call = (
        proptest::sample::select(functions),
        proptest::collection::vec(proptest::sample::select(arguments.to_vec()), 0..5),
    );
    call.prop_map(|(function, arguments)| format!("{{{{ {function} {} }}}}", arguments.join(" ")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_source_makes_the_engine_panic(source in fragments()) {
        let _ = render(&source);
        let _ = render(&format!("{{{{ {source} }}}}"));
    }

    #[test]
    fn no_call_makes_the_engine_panic(source in calls()) {
        let _ = render(&source);
    }

    #[test]
    fn no_text_makes_the_engine_panic(source in "\\PC{0,60}") {
        let _ = render(&source);
        let _ = render(&format!("{{{{ {source:?} | printf }}}}"));
        let _ = render_value(&Value::String(source), &json!({}));
    }
}
