//! Label selectors of specs, as text.

use serde_json::Value;

/// The selector or selectors of a spec; `<none>` without one.
pub fn selector_text(spec: Option<&Value>) -> String {
    let get = |name: &str| spec.and_then(|spec| spec.get(name)).filter(|value| !value.is_null());
    let any = get("orLabelSelectors").and_then(Value::as_array).filter(|list| !list.is_empty());
    match (get("labelSelector"), any) {
        (Some(one), _) => one_text(one),
        (None, Some(any)) => any.iter().map(one_text).collect::<Vec<_>>().join(" or "),
        (None, None) => "<none>".into(),
    }
}

fn one_text(selector: &Value) -> String {
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    let all: Vec<_> = labels.chain(expressions.map(expression_text)).collect();
    if all.is_empty() { "<none>".into() } else { all.join(",") }
}

fn expression_text(expression: &Value) -> String {
    let text = |name: &str| expression.get(name).and_then(Value::as_str).unwrap_or_default();
    let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
    let values = values.filter_map(Value::as_str).collect::<Vec<_>>().join(",");
    match text("operator") {
        "In" => format!("{} in ({values})", text("key")),
        "NotIn" => format!("{} notin ({values})", text("key")),
        "DoesNotExist" => format!("!{}", text("key")),
        _ => text("key").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_reads_as_it_is_typed() {
        let spec = json!({ "labelSelector": { "matchLabels": { "a": "b" }, "matchExpressions": [
            { "key": "c", "operator": "NotIn", "values": ["d", "e"] }, { "key": "f", "operator": "Exists" },
            { "key": "g", "operator": "DoesNotExist" }] } });
        assert_eq!(selector_text(Some(&spec)), "a=b,c notin (d,e),f,!g");
        let any = json!({ "orLabelSelectors": [{ "matchLabels": { "a": "b" } }, { "matchLabels": { "c": "d" } }] });
        assert_eq!(selector_text(Some(&any)), "a=b or c=d");
        assert_eq!(selector_text(Some(&json!({}))), "<none>");
    }
}
