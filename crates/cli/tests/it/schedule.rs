//! Schedules: backups that make themselves.

use jiff::{SignedDuration, Timestamp};
use plimsoll_testkit::wait::WAIT_TIMEOUT;
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, on_both_clusters, phase};

on_both_clusters! {
    a_schedule_creates_backups_when_they_are_due,
    an_invalid_schedule_reports_the_reason,
    a_paused_schedule_creates_no_backups_and_skip_immediately_delays_the_first,
    a_submission_killed_at_any_point_is_created_once,
}

async fn create(home: &Home<'_>, name: &str, spec: Value) {
    let metadata = json!({ "name": name, "labels": { "team": "shop" }, "annotations": { "note": "x" } });
    let object = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": metadata, "spec": spec });
    home.create(object).await.unwrap();
}

/// Two hours ago: whatever runs hourly is due.
fn two_hours_ago() -> Value {
    json!({ "status": { "lastBackup": format!("{:.0}", Timestamp::now() - SignedDuration::from_hours(2)) } })
}

async fn backups(home: &Home<'_>, schedule: &str) -> Vec<Value> {
    let all = home.list("Backup").await.into_iter().map(|backup| serde_json::to_value(backup).unwrap());
    all.filter(|backup| backup["metadata"]["labels"]["velero.io/schedule-name"] == schedule).collect()
}

async fn a_schedule_creates_backups_when_they_are_due(bed: &Bed) {
    bed.application("shop", 3).await;
    let home = bed.home("home").await;
    let _server = home.server();
    let template = json!({ "includedNamespaces": [bed.ns("shop")], "ttl": "1h" });
    create(
        &home,
        "often",
        json!({ "schedule": "@every 1s", "template": template, "useOwnerReferencesInBackup": true }),
    )
    .await;
    eventually("two backups have been made and have ended", async || {
        backups(&home, "often").await.iter().filter(|backup| phase(backup) == "Completed").count() >= 2
    })
    .await;
    home.patch("Schedule", "often", json!({ "spec": { "paused": true } })).await;
    let schedule = home.get("Schedule", "often").await;
    assert_eq!(phase(&schedule), "Enabled");
    assert!(schedule["status"]["lastBackup"].is_string());
    for backup in backups(&home, "often").await {
        let name = backup["metadata"]["name"].as_str().unwrap();
        let digits = name.strip_prefix("often-").unwrap();
        assert!(digits.len() == 14 && digits.bytes().all(|byte| byte.is_ascii_digit()), "{name}");
        assert_eq!(backup["metadata"]["labels"]["team"], "shop");
        assert_eq!(backup["metadata"]["annotations"]["note"], "x");
        assert_eq!(backup["metadata"]["ownerReferences"][0]["uid"], schedule["metadata"]["uid"]);
        assert_eq!(backup["spec"]["ttl"], "1h0m0s");
    }
    assert!(home.events("Schedule", "often").await.contains(&"BackupCreated".to_owned()));
}

async fn an_invalid_schedule_reports_the_reason(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    let refused = async |name: &str, expected: &str| {
        let mut last = Value::Null;
        eventually("the schedule is refused", async || {
            last = home.get("Schedule", name).await;
            phase(&last) == "FailedValidation" && last["status"]["validationErrors"].to_string().contains(expected)
        })
        .await;
    };
    create(&home, "expression", json!({ "schedule": "0 25 * * *", "template": {} })).await;
    refused("expression", "invalid schedule: hour").await;
    let template = json!({ "resourcePolicy": { "kind": "Secret", "name": "rules" } });
    create(&home, "template", json!({ "schedule": "@daily", "template": template })).await;
    refused("template", "spec.template.resourcePolicy").await;
    home.patch("Schedule", "expression", json!({ "spec": { "schedule": "0 5 * * *" } })).await;
    eventually("a corrected schedule is enabled", async || {
        let schedule = home.get("Schedule", "expression").await;
        phase(&schedule) == "Enabled" && schedule["status"]["validationErrors"].is_null()
    })
    .await;
    assert!(home.list("Backup").await.is_empty());
}

async fn a_paused_schedule_creates_no_backups_and_skip_immediately_delays_the_first(bed: &Bed) {
    bed.application("shop", 3).await;
    let home = bed.home("home").await;
    let template = json!({ "includedNamespaces": [bed.ns("shop")] });
    for (name, extra) in [("paused", "paused"), ("later", "skipImmediately"), ("now", "none")] {
        create(&home, name, json!({ "schedule": "@every 1h", "template": template, extra: true })).await;
        home.patch("Schedule", name, two_hours_ago()).await;
    }
    home.patch("Schedule", "now", json!({ "spec": { "none": null } })).await;
    let _server = home.server();
    eventually("the one that is due has made its backup", async || backups(&home, "now").await.len() == 1).await;
    eventually("the schedule with skipImmediately has skipped", async || {
        let schedule = home.get("Schedule", "later").await;
        schedule["status"]["lastSkipped"].is_string() && schedule["spec"]["skipImmediately"] == false
    })
    .await;
    eventually("the paused one is enabled", async || phase(&home.get("Schedule", "paused").await) == "Enabled").await;
    assert!(backups(&home, "paused").await.is_empty() && backups(&home, "later").await.is_empty());
    home.patch("Schedule", "paused", json!({ "spec": { "paused": false } })).await;
    eventually("unpaused, it catches up once", async || backups(&home, "paused").await.len() == 1).await;
}

async fn a_submission_killed_at_any_point_is_created_once(bed: &Bed) {
    bed.application("shop", 3).await;
    for point in ["schedule.create.before", "schedule.create.after", "schedule.status.before", "schedule.status.after"]
    {
        let home = bed.home(&point.replace('.', "-")).await;
        let template = json!({ "includedNamespaces": [bed.ns("shop")] });
        create(&home, "s", json!({ "schedule": "@every 1h", "template": template })).await;
        home.patch("Schedule", "s", two_hours_ago()).await;
        let mut server = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", point)]);
        tokio::time::timeout(WAIT_TIMEOUT, server.wait()).await.unwrap().unwrap();
        let _next = home.server_with_short_lease(&[]);
        eventually(&format!("the backup has been made after {point}"), async || {
            let made = backups(&home, "s").await;
            let last = home.get("Schedule", "s").await["status"]["lastBackup"].as_str().unwrap().to_owned();
            let fresh = last.parse::<Timestamp>().unwrap() > Timestamp::now() - SignedDuration::from_hours(1);
            made.len() == 1 && phase(&made[0]) == "Completed" && fresh
        })
        .await;
    }
}
