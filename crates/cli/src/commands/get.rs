//! `plimsoll get`.

use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_api::plimsoll::v1alpha1::Operation;
use serde_json::Value;

use crate::args::{Get, Global, Kind, ListKind, Named};
use crate::exit::Outcome;
use crate::subjects::{self, Seen};
use crate::{connect, draw, output};

/// Lists what was asked for.
pub async fn run(global: &Global, options: Get) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    match options.kind {
        ListKind::Backups => print_subjects(
            &subjects::list(&client, &global.namespace, Kind::Backup, &options.named.names).await?,
            &options.named,
        )?,
        ListKind::Restores => print_subjects(
            &subjects::list(&client, &global.namespace, Kind::Restore, &options.named.names).await?,
            &options.named,
        )?,
        ListKind::Operations => {
            let operations = subjects::operations(&client, &global.namespace, &options.named.names).await?;
            let header = ["NAME", "STATE", "PROGRESS", "LEFT", "AGE", "DOING"];
            output::list(&operations, options.named.output, &header, operation_row)?;
        }
    }
    Ok(Outcome::Success)
}

fn print_subjects(seen: &[Seen], named: &Named) -> anyhow::Result<()> {
    let header = ["NAME", "STATUS", "PROGRESS", "ITEMS", "ERRORS", "WARNINGS", "AGE"];
    let objects: Vec<&Value> = seen.iter().map(|seen| &seen.object).collect();
    match named.output {
        crate::args::ListFormat::Table => {
            let rows: Vec<_> = seen.iter().map(subject_row).collect();
            output::table(&header, &rows).into_iter().for_each(output::line);
            Ok(())
        }
        format => output::list(&objects, format, &header, |_| Vec::new()),
    }
}

fn subject_row(seen: &Seen) -> Vec<String> {
    let items = seen.items();
    vec![
        seen.name().to_owned(),
        seen.phase().to_owned(),
        seen.text("/status/plimsoll/percent").map(|percent| format!("{percent}%")).unwrap_or_default(),
        items.total.value().map(|total| format!("{}/{total}", items.settled())).unwrap_or_default(),
        seen.number("/status/errors").to_string(),
        seen.number("/status/warnings").to_string(),
        age(seen.text("/metadata/creationTimestamp")),
    ]
}

fn operation_row(operation: &Operation) -> Vec<String> {
    let status = operation.status.clone().unwrap_or_default();
    let summary = status.plimsoll.unwrap_or_default();
    let stalled = summary.stalled.as_ref().and_then(|stall| stall.message.clone()).map(|why| format!("STALLED: {why}"));
    let left = summary.seconds_left.map(|[low, high]| format!("{low}-{high}s")).unwrap_or_default();
    vec![
        operation.name_any(),
        status.state.map(|state| state.to_string()).unwrap_or_default(),
        summary.percent.map(|percent| format!("{percent}%")).unwrap_or_default(),
        left,
        age(operation.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).as_deref()),
        stalled.or(summary.task).unwrap_or_default(),
    ]
}

/// How long ago that was.
pub fn age(time: Option<&str>) -> String {
    let then = time.and_then(|text| text.parse::<Timestamp>().ok());
    then.map(|then| draw::duration(Timestamp::now().duration_since(then).as_secs_f64())).unwrap_or_default()
}
