//! The ConfigMap of the wait container: image, resources and securityContext, with the keys of Velero.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::SecurityContext;
use plimsoll_select::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::restore_wait_action::RestoreHelper;
use crate::transfer::RESTORE_WAIT;

/// Requests and limits, as Velero sets them: the resource, its two keys and their default.
const SHARES: [(&str, [&str; 2], &str); 2] =
    [("cpu", ["cpuRequest", "cpuLimit"], "100m"), ("memory", ["memRequest", "memLimit"], "128Mi")];
const USER: &str = "secCtxRunAsUser";
const GROUP: &str = "secCtxRunAsGroup";
const ESCALATION: &str = "secCtxAllowPrivilegeEscalation";
const SECURITY: &str = "secCtx";
/// The other keys of Velero.
const IMAGE: &str = "image";
const COMMAND: &str = "command";

/// Warnings about keys that have no effect.
pub(super) fn unknown(data: &BTreeMap<&str, &str>) -> Vec<String> {
    let shares = SHARES.iter().flat_map(|(_, keys, _)| keys);
    let known: Vec<&str> =
        [IMAGE, COMMAND, USER, GROUP, ESCALATION, SECURITY].into_iter().chain(shares.copied()).collect();
    let mut warnings: Vec<String> = data
        .keys()
        .filter(|key| !known.contains(*key))
        .map(|key| format!("the ConfigMap has an unknown key {key:?}"))
        .collect();
    if let Some(command) = data.get(COMMAND) {
        warnings.push(format!("command {command:?} of the ConfigMap is ignored: it is not a command of plimsoll"));
    }
    warnings
}

/// Another image of the same name, such as that of a mirror. Any other is Velero's, which does not have our program.
pub(super) fn image(helper: &RestoreHelper, data: &BTreeMap<&str, &str>) -> Result<Option<String>, String> {
    let Some(image) = data.get(IMAGE) else { return Ok(None) };
    let (name, tag) = name_and_tag(image);
    let (own, own_tag) = name_and_tag(&helper.image);
    if name != own {
        return Err(format!(
            "image {image:?} of the ConfigMap is ignored: container {RESTORE_WAIT} needs {own:?}, as in {}",
            helper.image
        ));
    }
    Ok(Some(if tag.is_empty() { format!("{image}{own_tag}") } else { (*image).to_owned() }))
}

/// `plimsoll` and `:1` of `registry:5000/tools/plimsoll:1`.
fn name_and_tag(image: &str) -> (&str, &str) {
    let last = image.rsplit('/').next().unwrap_or_default();
    last.split_at(last.find([':', '@']).unwrap_or(last.len()))
}

/// Requests and limits; none where `0` is given.
pub(super) fn resources(data: &BTreeMap<&str, &str>, warnings: &mut Vec<String>) -> Value {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for (resource, keys, default) in SHARES {
        let mut texts = keys.map(|key| data.get(key).copied().unwrap_or(default));
        if let Err(error) = check_quantities(keys, texts) {
            warnings.push(error);
            texts = [default; 2];
        }
        for (text, into) in texts.into_iter().zip([&mut requests, &mut limits]) {
            if Quantity::parse(text).is_some_and(Quantity::is_positive) {
                into.insert(resource.to_owned(), json!(text));
            }
        }
    }
    json!({ "requests": requests, "limits": limits })
}

/// Checks that these are quantities, and that the request is not more than the limit.
fn check_quantities(keys: [&str; 2], texts: [&str; 2]) -> Result<(), String> {
    let read = |at: usize| {
        let quantity = Quantity::parse(texts[at]).filter(|quantity| quantity.is_zero() || quantity.is_positive());
        quantity.ok_or_else(|| {
            format!("{} {:?} of the ConfigMap: invalid quantity; using the default", keys[at], texts[at])
        })
    };
    let (request, limit) = (read(0)?, read(1)?);
    if limit.is_positive() && request > limit {
        let [request, limit] = [0, 1].map(|at| format!("{} {:?}", keys[at], texts[at]));
        return Err(format!("{request} of the ConfigMap is more than {limit}; using the defaults"));
    }
    Ok(())
}

/// The securityContext, if a key sets it. One invalid key invalidates all, as in Velero.
pub(super) fn security(data: &BTreeMap<&str, &str>) -> Result<Option<Value>, String> {
    let invalid = |key: &str, error: &str| format!("{key} {:?} of the ConfigMap is ignored: {error}", data[key]);
    let mut context = Map::new();
    for (key, field) in [(USER, "runAsUser"), (GROUP, "runAsGroup")] {
        if let Some(text) = data.get(key) {
            let number = text.parse::<i64>().ok().filter(|number| *number >= 0);
            context.insert(field.to_owned(), json!(number.ok_or_else(|| invalid(key, "not a number"))?));
        }
    }
    if let Some(text) = data.get(ESCALATION) {
        let value = match *text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => return Err(invalid(ESCALATION, "must be true or false")),
        };
        context.insert("allowPrivilegeEscalation".into(), json!(value));
    }
    if let Some(text) = data.get(SECURITY) {
        context.extend(strict(text).map_err(|error| invalid(SECURITY, &error))?);
    }
    Ok((!context.is_empty()).then_some(Value::Object(context)))
}

/// Parses a securityContext in YAML. Unknown fields are errors.
fn strict(text: &str) -> Result<Map<String, Value>, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let read: SecurityContext = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    let read = serde_json::to_value(read).map_err(|error| error.to_string())?;
    match (unknown_field(&value, &read), value) {
        (Some(field), _) => Err(format!("unknown field {field}")),
        (None, Value::Object(fields)) => Ok(fields),
        (None, _) => Err("not a securityContext".into()),
    }
}

/// The first field that the parser dropped.
fn unknown_field(value: &Value, read: &Value) -> Option<String> {
    let fields = value.as_object()?.iter().filter(|(_, value)| !value.is_null());
    fields.into_iter().find_map(|(field, value)| match read.get(field) {
        None => Some(field.clone()),
        Some(read) => unknown_field(value, read).map(|below| format!("{field}.{below}")),
    })
}
