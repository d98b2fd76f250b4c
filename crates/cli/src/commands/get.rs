//! `plimsoll get`.

use jiff::Timestamp;
use plimsoll_progress::TimeLeft;
use plimsoll_progress::view;
use serde_json::{Value, json};

use crate::args::Global;
use crate::args::names::{Kind, Targets};
use crate::args::options::{GetOptions, ListFormat, ObjectFormat};
use crate::exit::Outcome;
use crate::selectors::selector_text;
use crate::subjects::{self, Seen};
use crate::{connect, draw, output};

/// Lists what was asked for.
pub async fn run(global: &Global, targets: &Targets, options: &GetOptions) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let seen = subjects::list(&client, &global.namespace, targets, options.selector.as_deref()).await?;
    print(&seen, targets, options)
}

/// Prints what was found.
pub fn print(seen: &[Seen], targets: &Targets, options: &GetOptions) -> anyhow::Result<Outcome> {
    match options.output {
        ListFormat::Table => table(seen, targets.kind, options).into_iter().for_each(output::line),
        ListFormat::Name => seen.iter().for_each(|seen| output::line(seen.name())),
        ListFormat::Json => output::object(&whole(seen, targets), ObjectFormat::Json)?,
        ListFormat::Yaml => output::object(&whole(seen, targets), ObjectFormat::Yaml)?,
    }
    Ok(Outcome::Success)
}

/// The one that was named, or a list.
fn whole(seen: &[Seen], targets: &Targets) -> Value {
    if let ([only], [_]) = (seen, targets.names.as_slice()) {
        return only.object.clone();
    }
    let resource = targets.kind.resource();
    let items: Vec<&Value> = seen.iter().map(|seen| &seen.object).collect();
    json!({ "apiVersion": resource.api_version, "kind": format!("{}List", resource.kind), "metadata": {}, "items": items })
}

fn table(seen: &[Seen], kind: Kind, options: &GetOptions) -> Vec<String> {
    let columns = columns(kind);
    let mut header: Vec<String> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    header.extend(options.label_columns.iter().map(|label| label.rsplit('/').next().unwrap_or(label).to_uppercase()));
    if options.show_labels {
        header.push("LABELS".into());
    }
    let row = |seen: &Seen| {
        let labels = seen.map("/metadata/labels");
        let mut row: Vec<String> = columns.iter().map(|(_, cell)| cell(seen)).collect();
        row.extend(options.label_columns.iter().map(|label| labels.get(label).cloned().unwrap_or_default()));
        if options.show_labels {
            row.push(output::pairs(&labels, ","));
        }
        row
    };
    output::table(&header, &seen.iter().map(row).collect::<Vec<_>>())
}

type Column = (&'static str, fn(&Seen) -> String);

fn columns(kind: Kind) -> Vec<Column> {
    match kind {
        Kind::Backup => vec![
            ("NAME", |seen| seen.name().to_owned()),
            ("STATUS", |seen| seen.phase().to_owned()),
            ("PROGRESS", percent),
            ("ITEMS", items),
            ("ERRORS", |seen| seen.number("/status/errors").to_string()),
            ("WARNINGS", |seen| seen.number("/status/warnings").to_string()),
            ("AGE", |seen| age(seen.text("/metadata/creationTimestamp"))),
            ("EXPIRES", |seen| until(seen.text("/status/expiration"))),
            ("STORAGE LOCATION", |seen| text(seen, "/spec/storageLocation")),
            ("QUEUE POSITION", |seen| {
                seen.object.pointer("/status/queuePosition").map(ToString::to_string).unwrap_or_default()
            }),
            ("SELECTOR", |seen| selector_text(seen.object.get("spec"))),
        ],
        Kind::Restore => vec![
            ("NAME", |seen| seen.name().to_owned()),
            ("BACKUP", |seen| text(seen, "/spec/backupName")),
            ("STATUS", |seen| seen.phase().to_owned()),
            ("PROGRESS", percent),
            ("ITEMS", items),
            ("ERRORS", |seen| seen.number("/status/errors").to_string()),
            ("WARNINGS", |seen| seen.number("/status/warnings").to_string()),
            ("AGE", |seen| age(seen.text("/metadata/creationTimestamp"))),
            ("SELECTOR", |seen| selector_text(seen.object.get("spec"))),
        ],
        Kind::Schedule => vec![
            ("NAME", |seen| seen.name().to_owned()),
            ("STATUS", |seen| seen.phase().to_owned()),
            ("SCHEDULE", |seen| text(seen, "/spec/schedule")),
            ("BACKUP TTL", |seen| text(seen, "/spec/template/ttl")),
            ("LAST BACKUP", |seen| or_never(age(seen.text("/status/lastBackup")), " ago")),
            ("PAUSED", |seen| flag(seen, "/spec/paused")),
            ("AGE", |seen| age(seen.text("/metadata/creationTimestamp"))),
            ("SELECTOR", |seen| selector_text(seen.object.pointer("/spec/template"))),
        ],
        Kind::Location => vec![
            ("NAME", |seen| seen.name().to_owned()),
            ("PROVIDER", |seen| text(seen, "/spec/provider")),
            ("BUCKET/PREFIX", bucket),
            ("PHASE", |seen| seen.text("/status/phase").unwrap_or("Unknown").to_owned()),
            ("LAST VALIDATED", |seen| or_never(age(seen.text("/status/lastValidationTime")), " ago")),
            ("ACCESS MODE", |seen| seen.text("/spec/accessMode").unwrap_or("ReadWrite").to_owned()),
            ("DEFAULT", |seen| flag(seen, "/spec/default")),
        ],
        Kind::Action => vec![
            ("NAME", |seen| seen.name().to_owned()),
            ("STATE", |seen| seen.phase().to_owned()),
            ("PROGRESS", |seen| {
                seen.text("/status/progress/percentCompleted").map(|percent| format!("{percent}%")).unwrap_or_default()
            }),
            ("RUNNING PHASE", |seen| text(seen, "/status/progress/runningPhase")),
            ("ACTIONS", |seen| {
                let actions = seen.object.pointer("/spec/actions").and_then(Value::as_array).into_iter().flatten();
                actions.filter_map(|action| action["name"].as_str()).collect::<Vec<_>>().join(",")
            }),
            ("AGE", |seen| age(seen.text("/metadata/creationTimestamp"))),
        ],
        Kind::Operation => vec![
            ("NAME", |seen| seen.name().to_owned()),
            ("STATE", |seen| text(seen, "/status/state")),
            ("PROGRESS", percent),
            ("LEFT", left),
            ("AGE", |seen| age(seen.text("/metadata/creationTimestamp"))),
            ("DOING", doing),
        ],
    }
}

fn text(seen: &Seen, pointer: &str) -> String {
    seen.text(pointer).unwrap_or_default().to_owned()
}

fn flag(seen: &Seen, pointer: &str) -> String {
    seen.object.pointer(pointer).and_then(Value::as_bool).unwrap_or(false).to_string()
}

fn percent(seen: &Seen) -> String {
    seen.text("/status/plimsoll/percent").map(|percent| format!("{percent}%")).unwrap_or_default()
}

fn items(seen: &Seen) -> String {
    let items = seen.items();
    let total = items.total.value();
    total.map(|total| format!("{}/{total}", items.settled())).unwrap_or_default()
}

/// Bucket and where in it.
pub fn bucket(seen: &Seen) -> String {
    let (bucket, prefix) = (text(seen, "/spec/objectStorage/bucket"), text(seen, "/spec/objectStorage/prefix"));
    if prefix.is_empty() { bucket } else { format!("{bucket}/{prefix}") }
}

fn left(seen: &Seen) -> String {
    let seconds = seen.object.pointer("/status/plimsoll/secondsLeft").and_then(Value::as_array).map(Vec::as_slice);
    match seconds {
        Some([low, high]) => {
            view::left_text(TimeLeft { low: low.as_u64().unwrap_or(0), high: high.as_u64().unwrap_or(0) })
        }
        _ => String::new(),
    }
}

fn doing(seen: &Seen) -> String {
    let stalled = seen.text("/status/plimsoll/stalled/message").map(|why| format!("STALLED: {why}"));
    stalled.unwrap_or_else(|| text(seen, "/status/plimsoll/task"))
}

/// How long ago that was.
pub fn age(time: Option<&str>) -> String {
    let then = time.and_then(|text| text.parse::<Timestamp>().ok());
    then.map(|then| draw::duration(Timestamp::now().duration_since(then).as_secs_f64())).unwrap_or_default()
}

/// How long it is until then.
fn until(time: Option<&str>) -> String {
    let then = time.and_then(|text| text.parse::<Timestamp>().ok());
    let seconds = then.map(|then| then.duration_since(Timestamp::now()).as_secs_f64());
    seconds.map(|seconds| if seconds > 0.0 { draw::duration(seconds) } else { "expired".into() }).unwrap_or_default()
}

fn or_never(age: String, after: &str) -> String {
    if age.is_empty() { "never".into() } else { age + after }
}
