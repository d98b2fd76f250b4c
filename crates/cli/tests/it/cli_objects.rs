//! Created objects are those of the `velero` command line, field by field.

use std::process::Output;

use plimsoll_testkit::cache;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::bed::{Bed, Home};

/// Every flag at least once, and values that are easy to get wrong.
const CASES: &[&[&str]] = &[
    &["backup", "create", "x"],
    &["backup", "create", "x", "--include-namespaces", "a,b", "--exclude-namespaces", "c"],
    &["backup", "create", "x", "--include-resources", "pods,deployments.apps", "--exclude-resources", "secrets"],
    &["backup", "create", "x", "--include-cluster-resources"],
    &["backup", "create", "x", "--include-cluster-resources=false"],
    &["backup", "create", "x", "--include-cluster-scoped-resources", "a", "--exclude-cluster-scoped-resources", "b"],
    &[
        "backup",
        "create",
        "x",
        "--include-namespace-scoped-resources",
        "*",
        "--exclude-namespace-scoped-resources",
        "d,e",
    ],
    &["backup", "create", "x", "-l", "app=shop"],
    &["backup", "create", "x", "--selector", "app==shop,tier in (web,db),x notin (y),z,!gone"],
    &["backup", "create", "x", "--or-selector", "a=b or c in (d,e)"],
    &["backup", "create", "x", "--labels", "a=b,c=d", "--labels", "e=f", "--annotations", "g=h"],
    &["backup", "create", "x", "--ttl", "72h30m", "--storage-location", "default"],
    &["backup", "create", "x", "--volume-snapshot-locations", "v1,v2", "--snapshot-volumes=false"],
    &["backup", "create", "x", "--snapshot-volumes", "--snapshot-move-data", "--data-mover", "velero"],
    &["backup", "create", "x", "--default-volumes-to-fs-backup", "--parallel-files-upload", "4"],
    &["backup", "create", "x", "--default-volumes-to-fs-backup=false", "--snapshot-move-data=false"],
    &["backup", "create", "x", "--ordered-resources", "pods=a/b,a/c;persistentvolumes=x"],
    &["backup", "create", "x", "--ordered-resources", "pods= a/b, a/c ; persistentvolumeclaims=n/p"],
    &["backup", "create", "x", "--csi-snapshot-timeout", "10m", "--item-operation-timeout", "90m"],
    &["backup", "create", "x", "--resource-policies-configmap", "policies"],
    &["backup", "create", "x", "--from-schedule", "daily", "--labels", "more=yes"],
    &["create", "backup", "x", "--include-namespaces", "a"],
    &["restore", "create", "r", "--from-backup", "b"],
    &["restore", "create", "r", "--from-backup", "b", "--include-namespaces", "a,b", "--exclude-namespaces", "c"],
    &["restore", "create", "r", "--from-backup", "b", "--include-resources", "pods", "--exclude-resources", "secrets"],
    &["restore", "create", "r", "--from-backup", "b", "--namespace-mappings", "a:b,c:d"],
    &["restore", "create", "r", "--from-backup", "b", "--existing-resource-policy", "update"],
    &["restore", "create", "r", "--from-backup", "b", "--existing-resource-policy", "none"],
    &[
        "restore",
        "create",
        "r",
        "--from-backup",
        "b",
        "--status-include-resources",
        "pods",
        "--status-exclude-resources",
        "x,y",
    ],
    &["restore", "create", "r", "--from-backup", "b", "--restore-volumes", "--preserve-nodeports=false"],
    &["restore", "create", "r", "--from-backup", "b", "--restore-volumes=false", "--preserve-nodeports"],
    &["restore", "create", "r", "--from-backup", "b", "--include-cluster-resources", "--allow-partially-failed"],
    &["restore", "create", "r", "--from-backup", "b", "--resource-modifier-configmap", "modifiers"],
    &["restore", "create", "r", "--from-backup", "b", "--resource-policies-configmap", "policies"],
    &["restore", "create", "r", "--from-backup", "b", "--write-sparse-files", "--parallel-files-download", "3"],
    &["restore", "create", "r", "--from-backup", "b", "--item-operation-timeout", "1h", "-l", "a=b"],
    &[
        "restore",
        "create",
        "r",
        "--from-backup",
        "b",
        "--or-selector",
        "a=b or c=d",
        "--labels",
        "e=f",
        "--annotations",
        "g=h",
    ],
    &["restore", "create", "r", "--from-schedule", "daily"],
    &["restore", "create", "r", "--from-schedule", "daily", "--allow-partially-failed"],
    &["schedule", "create", "s", "--schedule", "0 1 * * *"],
    &["schedule", "create", "s", "--schedule", "@every 6h", "--paused", "--labels", "a=b"],
    &[
        "schedule",
        "create",
        "s",
        "--schedule",
        "@daily",
        "--skip-immediately",
        "true",
        "--use-owner-references-in-backup",
    ],
    &["schedule", "create", "s", "--schedule", "@daily", "--use-owner-references-in-backup=false", "--paused=false"],
    &["create", "schedule", "s", "--schedule", "@daily", "--include-namespaces", "a", "--ttl", "1h", "-l", "a=b"],
    &["backup-location", "create", "l", "--provider", "aws", "--bucket", "b"],
    &["backup-location", "create", "l", "--provider", "aws", "--bucket", "b", "--prefix", "p", "--default"],
    &["backup-location", "create", "l", "--provider", "aws", "--bucket", "b", "--config", "region=r,s3Url=http://x:1"],
    &["backup-location", "create", "l", "--provider", "aws", "--bucket", "b", "--credential", "secret=key"],
    &["backup-location", "create", "l", "--provider", "aws", "--bucket", "b", "--access-mode", "ReadOnly"],
    &["backup-location", "create", "l", "--provider", "aws", "--bucket", "b", "--backup-sync-period", "2m"],
    &[
        "backup-location",
        "create",
        "l",
        "--provider",
        "aws",
        "--bucket",
        "b",
        "--validation-frequency",
        "30s",
        "--labels",
        "a=b",
    ],
];

#[tokio::test(flavor = "multi_thread")]
async fn every_flag_has_the_meaning_of_velero() {
    let velero = plimsoll_testkit::require!(cache::program("velero"));
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    create_referenced_objects(&home).await;
    for case in CASES {
        let theirs = object(Command::new(&velero), &home, case).await;
        let ours = object(crate::bed::plimsoll(), &home, case).await;
        assert_eq!(ours, theirs, "{case:?}");
    }
}

/// What the flags refer to: Velero looks whether it is there.
async fn create_referenced_objects(home: &Home<'_>) {
    let create = async |kind: &str, name: &str, labels: Value, spec: Value, status: Value| {
        home.create(
            json!({ "apiVersion": "velero.io/v1", "kind": kind, "metadata": { "name": name, "labels": labels },
            "spec": spec, "status": status }),
        )
        .await
        .unwrap();
    };
    for name in ["v1", "v2"] {
        create("VolumeSnapshotLocation", name, json!({}), json!({ "provider": name }), json!({})).await;
    }
    let template = json!({ "includedNamespaces": ["shop"], "ttl": "5h0m0s" });
    create(
        "Schedule",
        "daily",
        json!({ "team": "shop" }),
        json!({ "schedule": "@daily", "template": template }),
        json!({}),
    )
    .await;
    let of_schedule = json!({ "velero.io/schedule-name": "daily" });
    let ended =
        |phase: &str, time: &str| json!({ "phase": phase, "startTimestamp": time, "completionTimestamp": time });
    let early = ended("Completed", "2026-01-01T00:00:00Z");
    create("Backup", "b", of_schedule.clone(), json!({}), early).await;
    create("Backup", "c", of_schedule, json!({}), ended("PartiallyFailed", "2026-01-02T00:00:00Z")).await;
}

async fn object(mut program: Command, home: &Home<'_>, arguments: &[&str]) -> Value {
    program.args(arguments).args(["-o", "json", "--namespace", &home.namespace, "--kubeconfig"]);
    let Output { status, stdout, stderr } = program.arg(&home.bed.kubeconfig).output().await.unwrap();
    let failed = || format!("{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{}", failed());
    let mut object: Value = serde_json::from_slice(&stdout).unwrap_or_else(|error| panic!("{error}: {}", failed()));
    object.as_object_mut().unwrap().remove("status");
    without_zero_values(object)
}

/// Go writes zero values where we write nothing; both read the same.
fn without_zero_values(value: Value) -> Value {
    let is_nothing = |value: &Value| [json!(null), json!(""), json!("0s"), json!({}), json!([])].contains(value);
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (key, without_zero_values(value)));
            Value::Object(fields.filter(|(_, value)| !is_nothing(value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_zero_values).collect()),
        other => other,
    }
}

#[tokio::test]
async fn contradictory_options_are_a_usage_error() {
    let cases: [(&[&str], &str); 8] = [
        (&["backup", "create"], "<NAME>"),
        (
            &["backup", "create", "x", "--include-resources", "a", "--include-cluster-scoped-resources", "b"],
            "cannot be used with",
        ),
        (&["backup", "create", "x", "-l", "a=b", "--or-selector", "c=d"], "cannot be used with"),
        (&["backup", "create", "x", "--wait", "-o", "json"], "cannot be used with"),
        (&["restore", "create", "r"], "--from-backup"),
        (&["restore", "create", "r", "--from-backup", "a", "--from-schedule", "b"], "cannot be used with"),
        (&["restore", "create", "r", "--from-backup", "a", "--existing-resource-policy", "replace"], "none, update"),
        (&["backup-location", "set", "x"], "--default, --credential or --cacert"),
    ];
    for (arguments, expected) in cases {
        let output = crate::bed::plimsoll().args(arguments).output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(expected), "{arguments:?}: {text}");
    }
}
