//! Templates come out as Go's own engine renders them. `hack/golden-templates` writes what is expected.

use plimsoll_blueprint::template::{Error, Template};
use serde_json::Value;

fn file(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The result of a rendering, in the format of the expectations.
fn outcome(source: &str, params: &Value) -> Result<String, String> {
    match Template::parse("golden", source).and_then(|template| template.render(params)) {
        Ok(output) => Ok(output),
        Err(Error::Parse { .. }) => Err("parse".into()),
        Err(Error::NotFound { key, .. }) => Err(format!("missing {key}")),
        Err(Error::Render { .. }) => Err("exec".into()),
        Err(other) => Err(other.to_string()),
    }
}

#[test]
fn every_template_renders_or_fails_as_in_go() {
    let params: Value = serde_json::from_str(&file("params.json")).unwrap();
    let expected = file("expected.jsonl");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for line in expected.lines() {
        let expected: Value = serde_json::from_str(line).unwrap();
        let source = expected["template"].as_str().unwrap();
        let wanted = match expected["output"].as_str() {
            Some(output) => Ok(output.to_owned()),
            None => Err(expected["fails"].as_str().unwrap().to_owned()),
        };
        let found = outcome(source, &params);
        seen += 1;
        if found != wanted {
            wrong.push(format!("{source}\n    Go: {wanted:?} {}\n  ours: {found:?}", expected["error"]));
        }
    }
    assert!(seen > 400, "only {seen} templates");
    assert!(wrong.is_empty(), "{} of {seen} differ:\n{}", wrong.len(), wrong.join("\n"));
}
