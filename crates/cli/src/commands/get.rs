//! `plimsoll get`.

use jiff::Timestamp;
use plimsoll_progress::TimeLeft;
use plimsoll_progress::view;
use serde_json::{Value, json};

use crate::args::Global;
use crate::args::names::{ResourceKind, Targets};
use crate::args::options::{GetOptions, ListFormat, ObjectFormat};
use crate::exit::Outcome;
use crate::selectors::selector_text;
use crate::subjects::{self, Subject};
use crate::{connect, draw, output};

/// Lists the requested objects.
pub async fn run(global: &Global, targets: &Targets, options: &GetOptions) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let subject = subjects::list(&client, &global.namespace, targets, options.selector.as_deref()).await?;
    print(&subject, targets, options)
}

/// Prints what was found.
pub fn print(subject: &[Subject], targets: &Targets, options: &GetOptions) -> anyhow::Result<Outcome> {
    match options.output {
        ListFormat::Table => table(subject, targets.kind, options).into_iter().for_each(output::line),
        ListFormat::Name => subject.iter().for_each(|subject| output::line(subject.name())),
        ListFormat::Json => output::object(&output_object(subject, targets), ObjectFormat::Json)?,
        ListFormat::Yaml => output::object(&output_object(subject, targets), ObjectFormat::Yaml)?,
    }
    Ok(Outcome::Success)
}

/// The named object, or a list.
fn output_object(subject: &[Subject], targets: &Targets) -> Value {
    if let ([only], [_]) = (subject, targets.names.as_slice()) {
        return only.object.clone();
    }
    let resource = targets.kind.resource();
    let items: Vec<&Value> = subject.iter().map(|subject| &subject.object).collect();
    json!({ "apiVersion": resource.api_version, "kind": format!("{}List", resource.kind), "metadata": {}, "items": items })
}

fn table(subject: &[Subject], kind: ResourceKind, options: &GetOptions) -> Vec<String> {
    let columns = columns(kind);
    let mut header: Vec<String> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    header.extend(options.label_columns.iter().map(|label| label.rsplit('/').next().unwrap_or(label).to_uppercase()));
    if options.show_labels {
        header.push("LABELS".into());
    }
    let row = |subject: &Subject| {
        let labels = subject.map("/metadata/labels");
        let mut row: Vec<String> = columns.iter().map(|(_, cell)| cell(subject)).collect();
        row.extend(options.label_columns.iter().map(|label| labels.get(label).cloned().unwrap_or_default()));
        if options.show_labels {
            row.push(output::pairs(&labels, ","));
        }
        row
    };
    output::table(&header, &subject.iter().map(row).collect::<Vec<_>>())
}

type Column = (&'static str, fn(&Subject) -> String);

const NAME: Column = ("NAME", |subject| subject.name().to_owned());
const STATUS: Column = ("STATUS", |subject| subject.phase().to_owned());
const AGE: Column = ("AGE", |subject| age(subject.text("/metadata/creationTimestamp")));
const SELECTOR: Column = ("SELECTOR", |subject| selector_text(subject.object.get("spec")));

/// How far a backup or restore is, and how it ended.
const RESULT: [Column; 4] = [
    ("PROGRESS", percent),
    ("ITEMS", items),
    ("ERRORS", |subject| subject.number("/status/errors").to_string()),
    ("WARNINGS", |subject| subject.number("/status/warnings").to_string()),
];

fn columns(kind: ResourceKind) -> Vec<Column> {
    match kind {
        ResourceKind::Backup => [
            &[NAME, STATUS][..],
            &RESULT,
            &[
                AGE,
                ("EXPIRES", |subject| until(subject.text("/status/expiration"))),
                ("STORAGE LOCATION", |subject| text(subject, "/spec/storageLocation")),
                ("QUEUE POSITION", |subject| {
                    subject.object.pointer("/status/queuePosition").map(ToString::to_string).unwrap_or_default()
                }),
                SELECTOR,
            ],
        ]
        .concat(),
        ResourceKind::Restore => {
            [&[NAME, ("BACKUP", |subject| text(subject, "/spec/backupName")), STATUS][..], &RESULT, &[AGE, SELECTOR]]
                .concat()
        }
        ResourceKind::Schedule => vec![
            NAME,
            STATUS,
            ("SCHEDULE", |subject| text(subject, "/spec/schedule")),
            ("BACKUP TTL", |subject| text(subject, "/spec/template/ttl")),
            ("LAST BACKUP", |subject| or_never(age(subject.text("/status/lastBackup")), " ago")),
            ("PAUSED", |subject| flag(subject, "/spec/paused")),
            AGE,
            ("SELECTOR", |subject| selector_text(subject.object.pointer("/spec/template"))),
        ],
        ResourceKind::Location => vec![
            NAME,
            ("PROVIDER", |subject| text(subject, "/spec/provider")),
            ("BUCKET/PREFIX", bucket),
            ("PHASE", |subject| subject.text("/status/phase").unwrap_or("Unknown").to_owned()),
            ("LAST VALIDATED", |subject| or_never(age(subject.text("/status/lastValidationTime")), " ago")),
            ("ACCESS MODE", |subject| subject.text("/spec/accessMode").unwrap_or("ReadWrite").to_owned()),
            ("DEFAULT", |subject| flag(subject, "/spec/default")),
        ],
        ResourceKind::Action => vec![
            NAME,
            ("STATE", |subject| subject.phase().to_owned()),
            ("PROGRESS", |subject| {
                subject
                    .text("/status/progress/percentCompleted")
                    .map(|percent| format!("{percent}%"))
                    .unwrap_or_default()
            }),
            ("RUNNING PHASE", |subject| text(subject, "/status/progress/runningPhase")),
            ("ACTIONS", |subject| {
                let actions = subject.object.pointer("/spec/actions").and_then(Value::as_array).into_iter().flatten();
                actions.filter_map(|action| action["name"].as_str()).collect::<Vec<_>>().join(",")
            }),
            AGE,
        ],
        ResourceKind::Operation => vec![
            NAME,
            ("STATE", |subject| text(subject, "/status/state")),
            ("PROGRESS", percent),
            ("LEFT", time_left),
            AGE,
            ("DOING", current_task),
        ],
    }
}

fn text(subject: &Subject, pointer: &str) -> String {
    subject.text(pointer).unwrap_or_default().to_owned()
}

fn flag(subject: &Subject, pointer: &str) -> String {
    subject.object.pointer(pointer).and_then(Value::as_bool).unwrap_or(false).to_string()
}

fn percent(subject: &Subject) -> String {
    subject.text("/status/plimsoll/percent").map(|percent| format!("{percent}%")).unwrap_or_default()
}

fn items(subject: &Subject) -> String {
    let items = subject.items();
    let total = items.total.value();
    total.map(|total| format!("{}/{total}", items.settled())).unwrap_or_default()
}

/// Bucket and where in it.
pub fn bucket(subject: &Subject) -> String {
    let (bucket, prefix) = (text(subject, "/spec/objectStorage/bucket"), text(subject, "/spec/objectStorage/prefix"));
    if prefix.is_empty() { bucket } else { format!("{bucket}/{prefix}") }
}

fn time_left(subject: &Subject) -> String {
    let seconds = subject.object.pointer("/status/plimsoll/secondsLeft").and_then(Value::as_array).map(Vec::as_slice);
    match seconds {
        Some([low, high]) => {
            view::left_text(TimeLeft { low: low.as_u64().unwrap_or(0), high: high.as_u64().unwrap_or(0) })
        }
        _ => String::new(),
    }
}

fn current_task(subject: &Subject) -> String {
    let verdict = subject.text("/status/plimsoll/verdict").unwrap_or("Stalled").to_uppercase();
    let stalled = subject.text("/status/plimsoll/stalled/message").map(|why| format!("{verdict}: {why}"));
    stalled.unwrap_or_else(|| text(subject, "/status/plimsoll/task"))
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
