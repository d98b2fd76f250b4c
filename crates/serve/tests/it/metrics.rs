//! What a collector reads, and the queries of the Grafana dashboard and the alert rules in `deploy`.

#![expect(clippy::float_cmp, reason = "counts are whole numbers")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use plimsoll_observe::Kind;
use promql::Node;
use serde_json::{Value, json};

use crate::test_bed::{TestBed, eventually};

/// Samples by name and labels, and the type of each family. Fails on what a collector would reject.
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

/// The metric and the labels that a query selects by.
#[derive(Debug)]
struct Selector {
    metric: String,
    labels: Vec<String>,
}

/// Functions that want a range, such as `[1h]`; a query that gives one to others, or none to these, is refused.
const OF_RANGES: [&str; 2] = ["rate", "increase"];
const OF_MOMENTS: [&str; 7] = ["absent", "count", "histogram_quantile", "max", "sum", "time", "vector"];

/// The selectors of a query. Fails on what Prometheus would reject.
fn selectors(query: &str) -> Vec<Selector> {
    let options = promql::ParserOptions::new().allow_dots(false).build();
    let tree = promql::parse(query.as_bytes(), &options).unwrap_or_else(|error| panic!("{query}: {error:?}"));
    let mut found = Vec::new();
    walk(&tree, false, query, &mut found);
    found
}

fn walk_all(nodes: &[Node], want_range: bool, query: &str, found: &mut Vec<Selector>) {
    for node in nodes {
        walk(node, want_range, query, found);
    }
}

fn walk(node: &Node, wants_range: bool, query: &str, found: &mut Vec<Selector>) {
    match node {
        Node::Operator { args, .. } => walk_all(args, false, query, found),
        Node::Negation(inner) => walk(inner, false, query, found),
        Node::Function { name, args, .. } => {
            let of_range = OF_RANGES.contains(&name.as_str());
            assert!(of_range || OF_MOMENTS.contains(&name.as_str()), "{query}: unknown function {name}");
            walk_all(args, of_range, query, found);
        }
        Node::Vector(vector) => {
            assert_eq!(vector.range.is_some(), wants_range, "{query}: a range where none is wanted, or the reverse");
            let (names, labels): (Vec<_>, Vec<_>) = vector.labels.iter().partition(|label| label.name == "__name__");
            let metric = String::from_utf8(names[0].value.clone()).unwrap();
            found.push(Selector { metric, labels: labels.iter().map(|label| label.name.clone()).collect() });
        }
        Node::Scalar(_) | Node::String(_) => {}
    }
}

/// All queries in a dashboard.
fn dashboard_queries(value: &Value) -> Vec<String> {
    match value {
        Value::Array(all) => all.iter().flat_map(dashboard_queries).collect(),
        Value::Object(fields) => {
            let own = fields.get("expr").and_then(Value::as_str).map(str::to_owned);
            own.into_iter().chain(fields.values().flat_map(dashboard_queries)).collect()
        }
        _ => Vec::new(),
    }
}

/// All queries in the alert rules: each stands on a line of its own.
fn alert_queries(text: &str) -> Vec<String> {
    let queries: Vec<_> =
        text.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).map(str::to_owned).collect();
    assert_eq!(queries.len(), text.matches("- alert: ").count(), "a rule without a query on one line");
    queries
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

async fn metrics(bed: &TestBed) -> String {
    reqwest::get(bed.url("/metrics")).await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_reads_what_dashboards_and_alerts_query() {
    let bed = TestBed::new(false).await;
    // What ended before the dashboard started is not counted.
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

    let actions = |how: &str, samples: &BTreeMap<String, f64>| {
        samples[&format!("kanister_action_set_resolutions_total{{resolution=\"{how}\"}}")]
    };
    assert_eq!((actions("success", &samples), actions("failure", &samples)), (0.0, 0.0), "a rate begins at zero");
    for (name, state) in [("one", "complete"), ("two", "complete"), ("three", "failed")] {
        bed.create(Kind::ActionSet, json!({ "metadata": { "name": name }, "status": { "state": state } })).await;
    }

    let (start, end) = ("2031-01-01T00:00:00Z", "2031-01-01T00:02:00Z");
    bed.create(Kind::Backup, backup("fresh", "Completed", start, end)).await;
    bed.create(Kind::Backup, backup("bad", "Failed", start, "2030-01-01T00:02:00Z")).await;
    let mut text = String::new();
    eventually("both are counted", async || {
        text = metrics(&bed).await;
        let samples = parse(&text).0;
        samples["velero_backup_success_total{schedule=\"daily\"}"]
            + samples["velero_backup_failure_total{schedule=\"daily\"}"]
            + actions("success", &samples)
            + actions("failure", &samples)
            > 4.5
    })
    .await;
    let (samples, types) = parse(&text);
    assert_eq!((actions("success", &samples), actions("failure", &samples)), (2.0, 1.0));
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
    let read = |file: &str| std::fs::read_to_string(deploy().join(file)).unwrap();
    let alerts = read("alerts.yaml");
    let grafana: Value = serde_json::from_str(&read("grafana-dashboard.json")).unwrap();
    // The files in `deploy` ask for nothing that is not there.
    for query in dashboard_queries(&grafana).into_iter().chain(alert_queries(&alerts)) {
        for Selector { metric, labels } in selectors(&query) {
            let ends = ["_bucket", "_sum", "_count"];
            let family = ends.iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(&metric);
            let exists = types.contains_key(&metric) || types.get(family).is_some_and(|kind| kind == "histogram");
            assert!(exists, "{query} uses {metric}, which does not exist");
            let series: Vec<_> = samples.keys().filter(|key| key.split('{').next() == Some(&metric)).collect();
            for label in labels {
                let has =
                    |key: &&String| key.contains(&format!("{{{label}=\"")) || key.contains(&format!(",{label}=\""));
                assert!(series.is_empty() || series.iter().any(has), "{query}: {metric} has no label {label}");
            }
        }
    }
    assert!(alerts.contains("absent(plimsoll_operations)") && alerts.contains("unless on (schedule)"));
    assert!(grafana["panels"].as_array().unwrap().len() >= 6);
}

#[test]
fn a_query_that_prometheus_would_refuse_is_noticed() {
    for broken in
        ["sum by (x", "rate(velero_backup_total)", "velero_backup_total[1h]", "summ(velero_backup_total)", "a b"]
    {
        assert!(std::panic::catch_unwind(|| selectors(broken)).is_err(), "{broken}");
    }
    let query = "sum(rate(a_total{kind=\"b\"}[5m])) / 2 > 1";
    let found = selectors(query);
    assert_eq!(
        (found.len(), found[0].metric.as_str(), found[0].labels.as_slice()),
        (1, "a_total", &["kind".to_owned()][..])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn warnings_snapshots_and_sizes_of_backups_have_veleros_names() {
    let bed = TestBed::new(false).await;
    let schedule = json!({ "metadata": { "name": "daily" }, "spec": { "schedule": "@hourly", "template": {} } });
    bed.create(Kind::Schedule, schedule).await;
    let daily = json!({ "velero.io/schedule-name": "daily" });
    let (start, end) = ("2031-01-01T00:00:00Z", "2031-01-01T00:02:00Z");
    let (samples, _) = parse(&metrics(&bed).await);
    for name in ["backup_warning", "volume_snapshot_attempt", "volume_snapshot_success", "volume_snapshot_failure"] {
        assert_eq!(samples[&format!("velero_{name}_total{{schedule=\"daily\"}}")], 0.0, "a rate begins at zero");
    }
    let uid = bed
        .create(
            Kind::Backup,
            json!({ "metadata": { "name": "fresh", "labels": daily }, "status": { "phase": "Completed",
        "startTimestamp": start, "completionTimestamp": end, "warnings": 3,
        "volumeSnapshotsAttempted": 5, "volumeSnapshotsCompleted": 4,
        "csiVolumeSnapshotsAttempted": 2, "csiVolumeSnapshotsCompleted": 2 } }),
        )
        .await;
    let operation = json!({ "metadata": { "name": "backup-fresh" }, "spec": { "verb": "backup",
        "subject": { "apiVersion": "velero.io/v1", "kind": "Backup", "name": "fresh", "uid": uid } } });
    bed.create(Kind::Operation, operation).await;
    let stages = json!([{ "name": "planning" }, { "name": "reading", "bytes": 4096 }]);
    bed.set_status(Kind::Operation, "backup-fresh", json!({ "state": "Succeeded", "stages": stages })).await;
    let mut text = String::new();
    eventually("it is counted", async || {
        text = metrics(&bed).await;
        let samples = parse(&text).0;
        samples["velero_backup_warning_total{schedule=\"daily\"}"] > 0.5
            && samples.contains_key("velero_backup_tarball_size_bytes{schedule=\"daily\"}")
    })
    .await;
    let (samples, types) = parse(&text);
    let daily = |name: &str| samples[&format!("velero_{name}{{schedule=\"daily\"}}")];
    assert_eq!(daily("backup_warning_total"), 1.0, "backups are counted, not warnings");
    let snapshots = ["attempt", "success", "failure"].map(|how| daily(&format!("volume_snapshot_{how}_total")));
    assert_eq!(snapshots, [5.0, 4.0, 1.0]);
    let csi = ["attempt", "success", "failure"]
        .map(|how| samples[&format!("velero_csi_snapshot_{how}_total{{schedule=\"daily\",backupName=\"fresh\"}}")]);
    assert_eq!(csi, [2.0, 2.0, 0.0]);
    assert_eq!(daily("backup_tarball_size_bytes"), 4096.0);
    assert_eq!(types["velero_backup_tarball_size_bytes"], "gauge");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_of_an_operation_and_age_of_the_last_success_are_metrics() {
    let bed = TestBed::new(false).await;
    let ago = |seconds: i64| Timestamp::from_second(Timestamp::now().as_second() - seconds).unwrap().to_string();
    let ended = |name: &str, phase: &str, seconds: i64| {
        json!({ "metadata": { "name": name, "labels": { "velero.io/schedule-name": "daily" } },
            "status": { "phase": phase, "startTimestamp": ago(seconds + 60), "completionTimestamp": ago(seconds) } })
    };
    bed.create(Kind::Backup, ended("older", "Completed", 9000)).await;
    bed.create(Kind::Backup, ended("good", "Completed", 7200)).await;
    bed.create(Kind::Backup, ended("bad", "Failed", 60)).await;
    let progress = json!({ "totalItems": 40, "itemsBackedUp": 15 });
    let status = json!({ "phase": "InProgress", "startTimestamp": ago(30), "progress": progress });
    bed.create(Kind::Backup, json!({ "metadata": { "name": "now" }, "status": status })).await;
    let (samples, types) = parse(&metrics(&bed).await);
    let labels = "{kind=\"backup\",namespace=\"velero\",name=\"now\",unit=\"items\"}";
    let of = |name: &str| samples[&format!("plimsoll_operation_{name}{labels}")];
    assert_eq!((of("done"), of("total")), (15.0, 40.0));
    let age = samples["plimsoll_last_success_age_seconds{kind=\"backup\",name=\"daily\"}"];
    assert!((7195.0..7500.0).contains(&age), "the latest good one ended two hours ago, not {age} seconds");
    let named = samples.keys().filter(|key| key.starts_with("plimsoll_operation_done{")).count();
    assert_eq!(named, 1, "what has ended is not named");
    for family in ["plimsoll_operation_done", "plimsoll_operation_total", "plimsoll_last_success_age_seconds"] {
        assert_eq!(types[family], "gauge");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_operations_with_series_of_their_own_is_limited() {
    let bed = TestBed::new(false).await;
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
