//! What a collector reads, and what the Grafana dashboard and the alert rules in `deploy` make of it.

#![expect(clippy::float_cmp, reason = "counts are whole numbers")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use plimsoll_observe::Kind;
use serde_json::{Value, json};

use crate::bed::{Bed, eventually};

/// Samples by name and labels, and the type of each family. Fails on whatever a collector would not understand.
fn parse(text: &str) -> (BTreeMap<String, f64>, BTreeMap<String, String>) {
    let (mut samples, mut types) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} comes twice");
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("not a sample: {line}"));
            let name = series.split('{').next().unwrap();
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .filter(|f| types.contains_key(*f));
            assert!(types.contains_key(family.unwrap_or(name)), "no type before {line}");
            assert!(series.matches('"').count() % 2 == 0 && (!series.contains('{') || series.ends_with('}')), "{line}");
            assert!(samples.insert(series.to_owned(), value.parse().unwrap()).is_none(), "{series} comes twice");
        }
    }
    (samples, types)
}

/// Names of ours and Velero's in a text.
fn mentioned(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words
        .filter(|word| (word.starts_with("plimsoll_") || word.starts_with("velero_")) && !word.ends_with('_'))
        .map(str::to_owned)
        .collect()
}

async fn metrics(bed: &Bed) -> String {
    reqwest::get(bed.url("/metrics")).await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_reads_what_dashboards_and_alerts_ask_for() {
    let bed = Bed::new(false).await;
    // Nothing is counted that ended before anybody could have looked.
    let backup = |name: &str, phase: &str, start: &str, end: &str| {
        json!({ "metadata": { "name": name, "labels": { "velero.io/schedule-name": "daily" } },
            "status": { "phase": phase, "startTimestamp": start, "completionTimestamp": end, "progress": { "totalItems": 7, "itemsBackedUp": 7 } } })
    };
    bed.create(Kind::Backup, backup("old", "Completed", "2020-01-01T00:00:00Z", "2020-01-01T00:01:00Z")).await;
    let schedule = json!({ "metadata": { "name": "daily" }, "spec": { "schedule": "@hourly", "template": {} },
        "status": { "phase": "Enabled", "lastBackup": "2020-01-01T00:00:00Z" } });
    bed.create(Kind::Schedule, schedule).await;
    bed.create(Kind::Backup, json!({ "metadata": { "name": "now" }, "status": { "phase": "InProgress" } })).await;
    bed.create(Kind::Location, json!({ "metadata": { "name": "default" }, "spec": { "provider": "aws", "objectStorage": { "bucket": "b" } }, "status": { "phase": "Available" } })).await;
    let (samples, _) = parse(&metrics(&bed).await);
    assert_eq!(samples["velero_backup_success_total{schedule=\"daily\"}"], 0.0);
    assert!(samples["velero_backup_last_successful_timestamp{schedule=\"daily\"}"] > 1e9);
    assert_eq!(samples["plimsoll_schedule_overdue_seconds{schedule=\"daily\"}"], 0.0, "its first turn has not come");

    let (start, end) = ("2031-01-01T00:00:00Z", "2031-01-01T00:02:00Z");
    bed.create(Kind::Backup, backup("fresh", "Completed", start, end)).await;
    bed.create(Kind::Backup, backup("bad", "Failed", start, "2030-01-01T00:02:00Z")).await;
    let mut text = String::new();
    eventually("both are counted", async || {
        text = metrics(&bed).await;
        let samples = parse(&text).0;
        samples["velero_backup_success_total{schedule=\"daily\"}"]
            + samples["velero_backup_failure_total{schedule=\"daily\"}"]
            > 1.5
    })
    .await;
    let (samples, types) = parse(&text);
    assert_eq!(samples["velero_backup_attempt_total{schedule=\"daily\"}"], 2.0);
    assert_eq!(samples["velero_backup_duration_seconds_bucket{schedule=\"daily\",le=\"60\"}"], 0.0);
    assert_eq!(samples["velero_backup_duration_seconds_bucket{schedule=\"daily\",le=\"300\"}"], 1.0);
    assert_eq!(samples["velero_backup_last_status{schedule=\"daily\"}"], 1.0);
    assert_eq!(samples["velero_backup_location_status_gauge{backup_location_name=\"default\"}"], 1.0);
    assert_eq!(samples["plimsoll_operation_duration_seconds_count{kind=\"backup\",outcome=\"succeeded\"}"], 1.0);
    assert!(samples.keys().any(|key| key.starts_with("plimsoll_operation_stalled{kind=\"backup\"")), "{text}");

    // A server that is gone, and a schedule without a good backup, are missed by rules that ask for these.
    assert!(samples.keys().any(|key| key.starts_with("plimsoll_operations{")), "{text}");
    assert!(samples["plimsoll_schedule_age_seconds{schedule=\"daily\"}"] >= 0.0);
    // The files in `deploy` ask for nothing that is not there.
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    for file in ["grafana-dashboard.json", "alerts.yaml"] {
        let asked = std::fs::read_to_string(deploy.join(file)).unwrap();
        let names = mentioned(&asked);
        assert!(names.len() >= 3, "{file} asks for {names:?}");
        for name in names {
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
            assert!(
                types.contains_key(family) || types.contains_key(&name),
                "{file} asks for {name}, which nobody tells"
            );
        }
    }
    let alerts = std::fs::read_to_string(deploy.join("alerts.yaml")).unwrap();
    assert!(alerts.contains("absent(plimsoll_operations)") && alerts.contains("unless on (schedule)"));
    let grafana: Value =
        serde_json::from_str(&std::fs::read_to_string(deploy.join("grafana-dashboard.json")).unwrap()).unwrap();
    assert!(grafana["panels"].as_array().unwrap().len() >= 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_operations_are_named_however_many_there_are() {
    let bed = Bed::new(false).await;
    for number in 0..130 {
        bed.create(
            Kind::Backup,
            json!({ "metadata": { "name": format!("b{number}") }, "status": { "phase": "InProgress" } }),
        )
        .await;
    }
    let (samples, _) = parse(&metrics(&bed).await);
    let named = samples.keys().filter(|key| key.starts_with("plimsoll_operation_stalled{")).count();
    assert_eq!((named, samples["plimsoll_operations_left_out"]), (100, 30.0));
}
