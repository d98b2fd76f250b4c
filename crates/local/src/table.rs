//! `Table` output: what `kubectl get` prints.

use crate::object::text;
use jiff::Timestamp;
use plimsoll_select::json_path::JsonPath;
use serde_json::{Value, json};

/// One column of a table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    /// Above zero: only in wide output.
    priority: u64,
    cell: Cell,
}

#[derive(Clone, Debug)]
enum Cell {
    JsonPath(JsonPath),
    Age(JsonPath),
    /// A cell that no path describes.
    Computed(String),
}

impl Column {
    fn new(name: &str, kind: &str, cell: Cell) -> Self {
        let format = if name == "Name" { "name" } else { "" };
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            format: format.to_owned(),
            description: String::new(),
            priority: 0,
            cell,
        }
    }

    fn name_column() -> Self {
        Self::new("Name", "string", Cell::JsonPath(JsonPath::parse(".metadata.name")))
    }

    fn age() -> Self {
        Self::new("Age", "string", Cell::Age(JsonPath::parse(".metadata.creationTimestamp")))
    }

    /// Columns of a built-in kind: `Title:.path`, `Title:#computed`, `Title*:` for wide output, `-Name` without a name.
    /// Name comes first and Age last unless they are mentioned.
    pub fn parse_all(text: &str) -> Vec<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut columns: Vec<Self> = words.iter().filter_map(|word| Self::parse(word)).collect();
        if !words.contains(&"-Name") {
            columns.insert(0, Self::name_column());
        }
        let has_age = columns.iter().any(|column| matches!(column.name.as_str(), "Age" | "Created At" | "Last Seen"));
        if !has_age {
            columns.push(Self::age());
        }
        columns
    }

    fn parse(word: &str) -> Option<Self> {
        let (title, source) = word.split_once(':')?;
        let name = title.trim_end_matches('*').replace('_', " ");
        let mut column = match source {
            "age" => Self::age(),
            source if source.starts_with('#') => Self::new(&name, "string", Cell::Computed(source[1..].to_owned())),
            path => Self::new(&name, "string", Cell::JsonPath(JsonPath::parse(path))),
        };
        column.priority = u64::from(title.ends_with('*'));
        Some(column)
    }

    /// The columns of a definition's version: those it lists, or the age.
    pub fn of_definition(columns: &Value) -> Vec<Self> {
        let listed = columns.as_array().into_iter().flatten().map(|column| {
            let path = JsonPath::parse(text(column, "/jsonPath"));
            let date = column["type"] == "date";
            Self {
                name: text(column, "/name").to_owned(),
                kind: text(column, "/type").to_owned(),
                format: text(column, "/format").to_owned(),
                description: text(column, "/description").to_owned(),
                priority: column["priority"].as_u64().unwrap_or_default(),
                cell: if date { Cell::Age(path) } else { Cell::JsonPath(path) },
            }
        });
        let mut all: Vec<Self> = std::iter::once(Self::name_column()).chain(listed).collect();
        if all.len() == 1 {
            all.push(Self::age());
        }
        all
    }

    fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format,
            "description": self.description, "priority": self.priority,
        })
    }

    fn cell_value(&self, object: &Value) -> Value {
        match &self.cell {
            Cell::Computed(name) => json!(compute(name, object)),
            Cell::Age(path) => json!(path.find(object).first().map_or("<unknown>".to_owned(), |time| age(time))),
            Cell::JsonPath(path) => show_found(&path.find(object), &self.kind),
        }
    }
}

fn show_found(found: &[&Value], kind: &str) -> Value {
    match found {
        [] | [Value::Null] => Value::Null,
        [Value::Number(number)] if matches!(kind, "integer" | "number") => json!(number),
        [Value::Bool(truth)] if kind == "boolean" => json!(truth),
        [single] => json!(show_value(single)),
        several => json!(several.iter().map(|value| show_value(value)).collect::<Vec<_>>().join(",")),
    }
}

fn show_value(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The age in the format of `kubectl`: `5s`, `3m20s`, `2h`, `12d`.
fn age(time: &Value) -> String {
    let Some(then) = time.as_str().and_then(|time| time.parse::<Timestamp>().ok()) else {
        return "<unknown>".to_owned();
    };
    let seconds = (Timestamp::now().as_second() - then.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        172_800..691_200 if hours % 24 != 0 => format!("{days}d{}h", hours % 24),
        _ if days < 730 => format!("{days}d"),
        _ => format!("{}y{}d", days / 365, days % 365),
    }
}

fn compute(name: &str, object: &Value) -> String {
    let count = |pointer: &str| object.pointer(pointer).map_or(0, length);
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    match name {
        "data" => (count("/data") + count("/binaryData")).to_string(),
        "secrets" => count("/secrets").to_string(),
        "ready" => format!(
            "{}/{}",
            statuses(object).filter(|status| status["ready"] == true).count(),
            count("/spec/containers")
        ),
        "restarts" => statuses(object).filter_map(|status| status["restartCount"].as_i64()).sum::<i64>().to_string(),
        "podStatus" if crate::object::is_terminating(object) => "Terminating".to_owned(),
        "podStatus" => {
            let reasons = ["/status/reason", "/state/waiting/reason", "/state/terminated/reason"];
            let mut reasons_found =
                std::iter::once(object).chain(statuses(object)).flat_map(|at| reasons.map(|it| text(at, it)));
            first_non_empty(
                reasons_found.find(|reason| !reason.is_empty()).unwrap_or_default(),
                text(object, "/status/phase"),
            )
        }
        "replicasReady" => format!("{}/{}", number("/status/readyReplicas"), number("/spec/replicas")),
        "ports" => ports(object),
        "selector" => pairs(&object["spec"]["selector"]),
        "modes" => modes(&object["spec"]["accessModes"]),
        "claim" => namespaced_name(text(object, "/spec/claimRef/namespace"), text(object, "/spec/claimRef/name")),
        "involved" => reference(&object["involvedObject"]),
        "regarding" => reference(&object["regarding"]),
        "lastSeen" => last_seen(object),
        "jobStatus" => condition(object, &["Complete", "Failed", "Suspended"]).unwrap_or("Running").to_owned(),
        "nodeReady" => condition(object, &["Ready"]).unwrap_or("NotReady").to_owned(),
        _ => String::new(),
    }
}

fn length(value: &Value) -> usize {
    value.as_object().map_or_else(|| value.as_array().map_or(0, Vec::len), serde_json::Map::len)
}

fn statuses(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/status/containerStatuses").and_then(Value::as_array).into_iter().flatten()
}

fn first_non_empty(first: &str, second: &str) -> String {
    if first.is_empty() { second.to_owned() } else { first.to_owned() }
}

fn namespaced_name(namespace: &str, name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("{namespace}/{name}") }
}

fn ports(object: &Value) -> String {
    let ports = object.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    let show = |port: &Value| format!("{}/{}", port["port"], port["protocol"].as_str().unwrap_or("TCP"));
    ports.map(show).collect::<Vec<_>>().join(",")
}

fn pairs(map: &Value) -> String {
    let pairs = map.as_object().into_iter().flatten();
    pairs.map(|(key, value)| format!("{key}={}", show_value(value))).collect::<Vec<_>>().join(",")
}

fn modes(list: &Value) -> String {
    let short = |mode: &Value| match mode.as_str().unwrap_or_default() {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "?",
    };
    list.as_array().into_iter().flatten().map(short).collect::<Vec<_>>().join(",")
}

fn reference(object: &Value) -> String {
    format!("{}/{}", text(object, "/kind").to_lowercase(), text(object, "/name"))
}

fn last_seen(event: &Value) -> String {
    let times = ["/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    let newest = times.iter().filter_map(|pointer| event.pointer(pointer)).find(|time| time.is_string());
    newest.map_or_else(|| "<unknown>".to_owned(), age)
}

fn condition<'a>(object: &'a Value, wanted: &[&str]) -> Option<&'a str> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let met = conditions.iter().find(|one| one["status"] == "True" && wanted.contains(&text(one, "/type")))?;
    met["type"].as_str()
}

/// How much of each object a table contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    pub fn parse(text: &str) -> Self {
        match text {
            "None" => Self::Nothing,
            "Object" => Self::Object,
            _ => Self::Metadata,
        }
    }
}

/// A table of objects. `metadata` is that of the list, or the resource version of a single object.
pub(crate) fn render(columns: &[Column], objects: &[Value], include: Include, metadata: &Value) -> Value {
    let rows: Vec<Value> = objects.iter().map(|object| row(columns, object, include)).collect();
    let definitions: Vec<Value> = columns.iter().map(Column::definition).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions, "rows": rows,
    })
}

fn row(columns: &[Column], object: &Value, include: Include) -> Value {
    let cells: Vec<Value> = columns.iter().map(|column| column.cell_value(object)).collect();
    match include {
        Include::Nothing => json!({"cells": cells}),
        Include::Metadata => json!({"cells": cells, "object": only_metadata(object)}),
        Include::Object => json!({"cells": cells, "object": object}),
    }
}

/// An object reduced to its metadata.
pub(crate) fn only_metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
