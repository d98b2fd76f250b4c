//! The files that record the outcome of each item.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use plimsoll_engine::outcome::{ItemOutcome, ItemRef, Recorder, Scope};
use serde_json::{Value, json};

fn item(namespace: Option<&str>, name: &str) -> ItemRef {
    ItemRef { kind: "v1/ConfigMap".into(), namespace: namespace.map(Into::into), name: name.into() }
}

fn unzip(path: &Path) -> Value {
    let mut text = String::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_item_is_in_the_outcome_and_in_the_sorted_list() {
    let scratch = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(scratch.path()).unwrap();
    recorder.item(&item(Some("b"), "z"), &ItemOutcome::Created);
    recorder.item(&item(Some("a"), "y"), &ItemOutcome::Skipped { reason: "AlreadyExists" });
    let failed = ItemOutcome::Failed { reason: "Rejected".into(), message: "denied by webhook".into() };
    recorder.item(&item(None, "x"), &failed);
    let recorded = recorder.finish().unwrap();
    assert_eq!(unzip(&recorded.resource_list), json!({"v1/ConfigMap": ["a/y(skipped)", "b/z(created)", "x(failed)"]}));
    assert_eq!(unzip(&recorded.outcome)[2]["message"], "denied by webhook");
    let reasons: Vec<_> = recorded.results.reasons.iter().map(|((what, why), n)| (*what, why.as_str(), *n)).collect();
    assert_eq!(reasons, [("failed", "Rejected", 1), ("skipped", "AlreadyExists", 1)]);
    assert_eq!(
        serde_json::to_value(&recorded.results).unwrap(),
        json!({"errors": {"cluster": ["v1/ConfigMap x: denied by webhook"]}, "warnings": {}})
    );
}

#[test]
fn files_are_valid_without_items() {
    let scratch = tempfile::tempdir().unwrap();
    let recorded = Recorder::create(scratch.path()).unwrap().finish().unwrap();
    assert_eq!(unzip(&recorded.outcome), json!([]));
    assert_eq!(unzip(&recorded.resource_list), json!({}));
}

#[test]
fn messages_beyond_the_limit_are_only_counted() {
    const MAX_MESSAGES: usize = 1000;
    let scratch = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(scratch.path()).unwrap();
    for n in 0..MAX_MESSAGES + 5 {
        recorder.warn(&Scope::Operation, format!("warning {n}"));
    }
    let warnings = recorder.finish().unwrap().results.warnings;
    assert_eq!((warnings.count, warnings.kept.velero.len()), (MAX_MESSAGES as u64 + 5, MAX_MESSAGES + 1));
    assert_eq!(warnings.kept.velero.last().unwrap(), "and 5 more: see the outcome file");
}
