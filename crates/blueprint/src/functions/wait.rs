//! Wait and WaitV2: wait for conditions on objects.

use std::time::Duration;

use plimsoll_api::kanister::v1alpha1::ObjectReference;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::arguments::Arguments;
use super::call::Call;
use super::json_path::JsonPath;
use super::kube_ops;
use crate::Error;
use crate::results::Outputs;
use crate::template::{Template, render_value};

/// Interval of evaluations.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Waits for conditions with JSONPath expressions.
pub async fn wait(call: &Call) -> Result<Outputs, Error> {
    wait_for_conditions(call, ConditionSyntax::JsonPaths).await
}

/// Waits for conditions that are templates over the object.
pub async fn wait_v2(call: &Call) -> Result<Outputs, Error> {
    wait_for_conditions(call, ConditionSyntax::Template).await
}

struct Condition {
    text: String,
    object: ObjectReference,
}

/// How a condition refers to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionSyntax {
    /// By `{ $.path }`, replaced before the rest is rendered as a template.
    JsonPaths,
    /// As a template over the object.
    Template,
}

impl ConditionSyntax {
    /// Why a condition can never be true: a path, or the template around it, is invalid.
    pub fn check(self, condition: &str) -> Result<(), String> {
        let template = match self {
            Self::JsonPaths => replace_paths(condition, |path| JsonPath::parse(path).map(|_| "1".to_owned()))?,
            Self::Template => condition.to_owned(),
        };
        Template::parse("condition", &template).map(drop).map_err(|error| error.to_string())
    }

    /// The text of a condition over an object; `true` if it holds. A missing field is an error.
    pub fn evaluate(self, condition: &str, object: &Value) -> Result<String, Error> {
        let render = |text: &str, data: &Value| {
            Template::parse("condition", text)?.with_missing_keys().render(data).map_err(Error::from)
        };
        match self {
            Self::JsonPaths => render(&resolve_paths(condition, object)?, &Value::Null),
            Self::Template => render(condition, object),
        }
    }
}

async fn wait_for_conditions(call: &Call, syntax: ConditionSyntax) -> Result<Outputs, Error> {
    let timeout = render_text(call, "timeout")?;
    let timeout = Arguments::new([("timeout".to_owned(), timeout)].into_iter().collect()).duration("timeout")?;
    let (any, all) = (conditions(call, "anyOf", syntax)?, conditions(call, "allOf", syntax)?);
    if any.is_empty() && all.is_empty() {
        return Err(Error::argument("conditions", "neither anyOf nor allOf is set"));
    }
    call.task.deadline(timeout);
    let _waiting = call.task.wait("waiting for conditions");
    let deadline = Instant::now() + timeout;
    loop {
        let mut last = None;
        let any_is_true = any_is(true, call, &any, syntax, &mut last).await?;
        let all_are_true = !all.is_empty() && !any_is(false, call, &all, syntax, &mut last).await?;
        if any_is_true || all_are_true {
            return Ok(Outputs::new());
        }
        if let Some(last) = &last {
            call.task.hint(last);
        }
        if Instant::now() >= deadline {
            let what = last.map_or("conditions".to_owned(), |last| format!("conditions (last: {last})"));
            return Err(Error::TimedOut { what, limit: timeout });
        }
        tokio::time::sleep(POLL_INTERVAL.min(deadline.saturating_duration_since(Instant::now()))).await;
    }
}

fn render_text(call: &Call, name: &str) -> Result<Value, Error> {
    let raw = call.arguments.all().get(name).cloned().unwrap_or_default();
    render_value(&raw, call.params.tree()).map_err(|error| Error::argument(name, error.to_string()))
}

/// Parses conditions. References are templates over the parameters; conditions are not.
fn conditions(call: &Call, group: &str, syntax: ConditionSyntax) -> Result<Vec<Condition>, Error> {
    let all = call.arguments.object("conditions")?.unwrap_or_default();
    let position = |index: usize| format!("conditions.{group}[{index}]");
    let one = |(index, raw): (usize, &Value)| {
        let text = raw["condition"].as_str().ok_or_else(|| Error::argument(position(index), "missing condition"))?;
        let object = render_value(&raw["objectReference"], call.params.tree())
            .map_err(|error| Error::argument(format!("{}.objectReference", position(index)), error.to_string()))?;
        let object = serde_json::from_value(Value::Object(object.as_object().cloned().unwrap_or_else(Map::new)))
            .map_err(|error| Error::argument(format!("{}.objectReference", position(index)), error.to_string()))?;
        // A syntax error is reported before waiting.
        syntax.check(text).map_err(|cause| Error::argument(position(index), cause))?;
        Ok(Condition { text: text.to_owned(), object })
    };
    all[group].as_array().into_iter().flatten().enumerate().map(one).collect()
}

/// Whether one of the conditions is `expected`. Those behind it are not evaluated.
async fn any_is(
    expected: bool,
    call: &Call,
    conditions: &[Condition],
    syntax: ConditionSyntax,
    last: &mut Option<String>,
) -> Result<bool, Error> {
    for condition in conditions {
        if matches(call, condition, syntax, last).await? == expected {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a condition is true. A missing object or field is not an error.
async fn matches(
    call: &Call,
    condition: &Condition,
    syntax: ConditionSyntax,
    last: &mut Option<String>,
) -> Result<bool, Error> {
    let evaluated = match kube_ops::read(call, &condition.object).await {
        Ok(object) => syntax.evaluate(&condition.text, &object),
        Err(error) => Err(error),
    };
    match evaluated {
        Ok(text) if text.trim() == "true" => Ok(true),
        Ok(text) => {
            *last = Some(format!("{:?}", text.trim().chars().take(100).collect::<String>()));
            Ok(false)
        }
        Err(error) if error.code() == Some(403) => Err(error),
        Err(error) => {
            *last = Some(error.to_string());
            Ok(false)
        }
    }
}

/// Replaces every `{ $.path }` by its value.
fn resolve_paths(condition: &str, object: &Value) -> Result<String, Error> {
    let evaluate = |path: &str| JsonPath::parse(path).and_then(|parsed| parsed.evaluate(object));
    replace_paths(condition, evaluate).map_err(|cause| Error::argument("conditions", cause))
}

/// Replaces every `{ $.path }`. An error names the path.
fn replace_paths(condition: &str, replace: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let (mut replaced, mut rest) = (String::new(), condition);
    while let Some((before, path, after)) = next_path(rest) {
        replaced += before;
        replaced += &replace(path).map_err(|cause| format!("path {path}: {cause}"))?;
        rest = after;
    }
    Ok(replaced + rest)
}

fn next_path(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let open = from + text[from..].find('{')?;
        let inner = text[open + 1..].trim_start();
        if inner.starts_with('$') && text[open + 1..].starts_with([' ', '$']) {
            let close = open + text[open..].find('}')?;
            return Some((&text[..open], text[open + 1..close].trim(), &text[close + 1..]));
        }
        from = open + 1;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_in_a_condition_are_replaced_by_their_values() {
        let object = json!({ "status": { "phase": "Running", "ready": 2,
            "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Other", "status": "False" }] } });
        let cases = [
            (
                "{{ if (eq \"{ $.status.phase }\" \"Running\") }}true{{ end }}",
                "{{ if (eq \"Running\" \"Running\") }}true{{ end }}",
            ),
            ("{$.status.ready}", "2"),
            ("no path {{ .x }}", "no path {{ .x }}"),
        ];
        for (condition, expected) in cases {
            assert_eq!(resolve_paths(condition, &object).unwrap(), expected);
        }
        assert!(resolve_paths("{ $.status.none }", &object).is_err());
    }

    #[test]
    fn a_condition_that_can_never_be_true_is_found_before_waiting() {
        let check = |condition: &str| ConditionSyntax::JsonPaths.check(condition);
        for valid in ["{{ if \"{$.status.finished[]}\" }}true{{ end }}", "{{ if { $.ready } }}true{{ end }}"] {
            assert_eq!(check(valid), Ok(()), "{valid}");
        }
        assert_eq!(check("{ $.a[b] }"), Err("path $.a[b]: unsupported [b]".into()));
        assert!(check("{{ if \"{$.a}\" }}true").is_err(), "the template has no end");
        assert!(ConditionSyntax::Template.check("{{ if $.a }}true").is_err());
    }
}
