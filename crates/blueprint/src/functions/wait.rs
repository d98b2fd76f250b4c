//! Wait and WaitV2: wait for conditions on objects.

use std::time::Duration;

use plimsoll_api::kanister::v1alpha1::ObjectReference;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::arguments::Arguments;
use super::call::Call;
use super::kube_ops;
use crate::Error;
use crate::results::Outputs;
use crate::template::{Template, render_value};

/// Interval of evaluations.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Waits for conditions with JSONPath expressions.
pub async fn wait(call: &Call) -> Result<Outputs, Error> {
    wait_for_conditions(call, |condition, object| {
        let resolved = resolve_paths(condition, object)?;
        Template::parse("condition", &resolved)?.with_missing_keys().render(&Value::Null).map_err(Error::from)
    })
    .await
}

/// Waits for conditions that are templates over the object.
pub async fn wait_v2(call: &Call) -> Result<Outputs, Error> {
    wait_for_conditions(call, |condition, object| {
        Template::parse("condition", condition)?.with_missing_keys().render(object).map_err(Error::from)
    })
    .await
}

struct Condition {
    text: String,
    object: ObjectReference,
}

type Evaluate = fn(&str, &Value) -> Result<String, Error>;

async fn wait_for_conditions(call: &Call, evaluate: Evaluate) -> Result<Outputs, Error> {
    let timeout = render_text(call, "timeout")?;
    let timeout = Arguments::new([("timeout".to_owned(), timeout)].into_iter().collect()).duration("timeout")?;
    let (any, all) = (conditions(call, "anyOf")?, conditions(call, "allOf")?);
    if any.is_empty() && all.is_empty() {
        return Err(Error::argument("conditions", "neither anyOf nor allOf is set"));
    }
    call.task.deadline(timeout);
    let _waiting = call.task.wait("waiting for conditions");
    let deadline = Instant::now() + timeout;
    loop {
        let mut last = None;
        let any_is_true = any_matches(call, &any, evaluate, &mut last).await?;
        let all_are_true = !all.is_empty() && all_match(call, &all, evaluate, &mut last).await?;
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
fn conditions(call: &Call, group: &str) -> Result<Vec<Condition>, Error> {
    let all = call.arguments.object("conditions")?.unwrap_or_default();
    let position = |index: usize| format!("conditions.{group}[{index}]");
    let one = |(index, raw): (usize, &Value)| {
        let text = raw["condition"].as_str().ok_or_else(|| Error::argument(position(index), "missing condition"))?;
        let object = render_value(&raw["objectReference"], call.params.tree())
            .map_err(|error| Error::argument(format!("{}.objectReference", position(index)), error.to_string()))?;
        let object = serde_json::from_value(Value::Object(object.as_object().cloned().unwrap_or_else(Map::new)))
            .map_err(|error| Error::argument(format!("{}.objectReference", position(index)), error.to_string()))?;
        // A syntax error is reported before waiting.
        if !text.contains("{ $") && !text.contains("{$") {
            Template::parse(&position(index), text)?;
        }
        Ok(Condition { text: text.to_owned(), object })
    };
    all[group].as_array().into_iter().flatten().enumerate().map(one).collect()
}

async fn any_matches(
    call: &Call,
    conditions: &[Condition],
    evaluate: Evaluate,
    last: &mut Option<String>,
) -> Result<bool, Error> {
    for condition in conditions {
        if matches(call, condition, evaluate, last).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn all_match(
    call: &Call,
    conditions: &[Condition],
    evaluate: Evaluate,
    last: &mut Option<String>,
) -> Result<bool, Error> {
    for condition in conditions {
        if !matches(call, condition, evaluate, last).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a condition is true. A missing object or field is not an error.
async fn matches(
    call: &Call,
    condition: &Condition,
    evaluate: Evaluate,
    last: &mut Option<String>,
) -> Result<bool, Error> {
    let evaluated = match kube_ops::read(call, &condition.object).await {
        Ok(object) => evaluate(&condition.text, &object),
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
    let (mut resolved, mut rest) = (String::new(), condition);
    while let Some((before, path, after)) = next_path(rest) {
        resolved += before;
        let found = evaluate_path(object, path)
            .map_err(|cause| Error::argument("conditions", format!("path {path}: {cause}")))?;
        resolved += &found;
        rest = after;
    }
    Ok(resolved + rest)
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

/// The values of a JSONPath, separated by spaces.
fn evaluate_path(object: &Value, path: &str) -> Result<String, String> {
    let mut found = vec![object];
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while !rest.is_empty() {
        let (step, after) = next_step(rest)?;
        found = found.into_iter().flat_map(|value| step.take(value)).collect();
        rest = after;
    }
    if found.is_empty() {
        return Err("no match".into());
    }
    let show = |value: &&Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Ok(found.iter().map(show).collect::<Vec<_>>().join(" "))
}

enum PathStep<'a> {
    Field(&'a str),
    Index(i64),
    All,
    Equal(&'a str, &'a str),
}

fn next_step(rest: &str) -> Result<(PathStep<'_>, &str), String> {
    if let Some(inner) = rest.strip_prefix('[') {
        let (inside, after) = inner.split_once(']').ok_or("unclosed bracket")?;
        return Ok((bracket(inside.trim())?, after));
    }
    let name = rest.strip_prefix('.').unwrap_or(rest);
    let end = name.find(['.', '[']).unwrap_or(name.len());
    match &name[..end] {
        "" => Err("empty step".into()),
        "*" => Ok((PathStep::All, &name[end..])),
        field => Ok((PathStep::Field(field), &name[end..])),
    }
}

fn unquoted(text: &str) -> Option<&str> {
    text.trim().strip_prefix(['\'', '"'])?.strip_suffix(['\'', '"'])
}

fn bracket(inside: &str) -> Result<PathStep<'_>, String> {
    if inside == "*" {
        return Ok(PathStep::All);
    }
    if let Ok(index) = inside.parse() {
        return Ok(PathStep::Index(index));
    }
    if let Some(filter) = inside.strip_prefix("?(@.").and_then(|filter| filter.strip_suffix(')')) {
        let (field, value) = filter.split_once("==").ok_or("unsupported filter, expected ==")?;
        return Ok(PathStep::Equal(field.trim(), unquoted(value).unwrap_or(value.trim())));
    }
    unquoted(inside).map(PathStep::Field).ok_or_else(|| format!("unsupported [{inside}]"))
}

impl PathStep<'_> {
    fn take<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let items = || value.as_array().map(Vec::as_slice).unwrap_or_default();
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let length = i64::try_from(items().len()).unwrap_or(0);
                let position = if *index < 0 { length + index } else { *index };
                usize::try_from(position).ok().and_then(|position| items().get(position)).into_iter().collect()
            }
            Self::All => match value {
                Value::Object(fields) => fields.values().collect(),
                _ => items().iter().collect(),
            },
            Self::Equal(field, request) => items().iter().filter(|item| equal(&item[*field], request)).collect(),
        }
    }
}

fn equal(value: &Value, request: &str) -> bool {
    match value {
        Value::String(text) => text == request,
        other => other.to_string().as_str() == request,
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
            ("{ $.status.conditions[0].type }", "Ready"),
            ("{ $.status.conditions[-1].type }", "Other"),
            ("{ $.status.conditions[?(@.type==\"Ready\")].status }", "True"),
            ("{ $.status.conditions[*].status }", "True False"),
            ("{ $['status']['phase'] }", "Running"),
            ("no path {{ .x }}", "no path {{ .x }}"),
        ];
        for (condition, expected) in cases {
            assert_eq!(resolve_paths(condition, &object).unwrap(), expected);
        }
        assert!(resolve_paths("{ $.status.none }", &object).is_err());
    }
}
