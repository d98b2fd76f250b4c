//! The views beside the operations, with something in them.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_observe::Kind;
use plimsoll_progress::{Operation, Task, Total, TreeRegistration, Unit, VirtualClock};
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};

use crate::browser::Page;
use crate::test_bed::{LATE, TestBed, eventually};

fn ago(minutes: u64) -> String {
    (Timestamp::now() - Duration::from_mins(minutes)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

async fn page(bed: &TestBed, chromium: &std::path::Path) -> Page {
    let mut page = Page::open(chromium, (1360, 860)).await;
    page.visit(&bed.url(&format!("/#token={}", bed.token.reveal()))).await;
    page.until("document.querySelector('.tile')").await;
    page
}

/// The texts of the cells of the row that begins with this, once it is there.
async fn cells(page: &mut Page, view: &str, first: &str) -> Vec<String> {
    page.eval(&format!("location.hash = '#/{view}'")).await;
    let row = format!(
        "[...document.querySelectorAll('tbody tr')].find(r => r.cells[0].innerText.trim().startsWith('{first}'))"
    );
    page.until(&row).await;
    let texts = page.eval(&format!("[...{row}.cells].map(c => c.innerText.trim())")).await;
    serde_json::from_value(texts).unwrap()
}

/// A volume on its way, of which the agent knows more than it has written.
struct Running {
    operation: Operation,
    upload: Task,
    clock: VirtualClock,
    _registration: TreeRegistration,
}

impl Running {
    fn step(&self, megabytes: u64) {
        for _ in 0..megabytes / 10 {
            self.upload.meter(Unit::Bytes).add(10 << 20);
            self.clock.advance(Duration::from_secs(1));
            self.operation.snapshot();
        }
    }
}

async fn running_volume(bed: &TestBed) -> Running {
    bed.create(Kind::Backup, json!({ "metadata": { "name": "nightly" }, "status": { "phase": "InProgress" } })).await;
    let volume = json!({ "metadata": { "name": "nightly-x1", "labels": { "velero.io/backup-name": "nightly" } },
        "spec": { "node": "node-1", "volume": "data", "pod": { "kind": "Pod", "namespace": "shop", "name": "db-0" },
            "backupStorageLocation": "default", "repoIdentifier": "none", "uploaderType": "kopia" },
        "status": { "phase": "InProgress", "progress": { "bytesDone": 1 << 20, "totalBytes": 1000 << 20 } } });
    let uid = bed.create(Kind::PodVolumeBackup, volume).await;
    let clock = VirtualClock::new();
    let operation = Operation::new("nightly-x1", clock.clock());
    let upload = operation.root().child("upload");
    upload.meter(Unit::Bytes).set_total(Total::Final(1000 << 20));
    let observer = operation.observer();
    let shown = bed.transfers.register(&uid, move || Some(observer.snapshot()));
    Running { operation, upload, clock, _registration: shown }
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_have_the_numbers_of_their_agents_with_speed_and_time_left() {
    let chromium = require!(cache::system_program("chromium"));
    let bed = TestBed::new(false).await;
    let running = running_volume(&bed).await;
    let snapshot = json!({ "metadata": { "name": "disk-1", "labels": { "velero.io/backup-name": "nightly" } },
        "spec": { "volume": "pv-disk-1", "backup": "nightly", "plugin": "example.io/disks" },
        "status": { "phase": "InProgress", "progress": { "bytesDone": 30 << 20, "totalBytes": 60 << 20 } } });
    bed.create(Kind::VolumePluginBackup, snapshot).await;
    running.step(250);
    let mut page = page(&bed, &chromium).await;
    let row = cells(&mut page, "volumes", "shop/db-0: data").await;
    assert_eq!(row[1..3], ["backup/nightly", "node-1"]);
    assert!(row[3].contains("25.00 %"), "{row:?}");
    assert_eq!(row[4..6], ["250.0 MiB of 1000.0 MiB", "10.0 MiB/s"]);
    assert!(row[6].contains("1m") && row[7] == "InProgress", "{row:?}");
    page.picture("volumes").await;
    // It moves before anything is written about it.
    running.step(250);
    page.until("document.querySelector('tbody').innerText.includes('500.0 MiB of 1000.0 MiB')").await;
    let row = cells(&mut page, "volumes", "pv-disk-1").await;
    assert!(row[1] == "backup/nightly" && row[3].contains("50.00 %") && row[4] == "30.0 MiB of ~60.0 MiB", "{row:?}");
    running.clock.advance(Duration::from_mins(10));
    page.until("[...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('db-0') && r.innerText.includes('Stuck'))").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_velero_the_speed_of_volumes_comes_from_watching_them() {
    let bed = TestBed::new(false).await;
    let upload = json!({ "metadata": { "name": "up-1", "labels": { "velero.io/backup-name": "nightly" } },
        "spec": { "sourceNamespace": "shop", "sourcePVC": "disk", "backupStorageLocation": "default", "snapshotType": "CSI",
            "operationTimeout": "10m" } });
    bed.create(Kind::DataUpload, upload).await;
    let written = |done: u64| json!({ "status": { "phase": "InProgress", "progress": { "bytesDone": done, "totalBytes": 1_u64 << 40 } } });
    let mut done = 0;
    eventually("it has a speed", async || {
        done += 1 << 20;
        bed.patch(Kind::DataUpload, "up-1", written(done)).await;
        let asked = reqwest::Client::new().get(bed.url("/api/overview")).header("X-Plimsoll-Token", bed.token.reveal());
        let body: Value = serde_json::from_str(&asked.send().await.unwrap().text().await.unwrap()).unwrap();
        let volume = &body["news"]["volumes"][0];
        volume["name"] == "shop/disk" && volume["rate"].as_str().is_some_and(|rate| rate.ends_with("/s"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missed_schedule_a_location_and_what_has_ended_are_shown_with_their_numbers() {
    let chromium = require!(cache::system_program("chromium"));
    let bed = TestBed::new(false).await;
    for (name, cron) in [("daily", LATE), ("hourly", "0 * * * *")] {
        let schedule = json!({ "metadata": { "name": name }, "spec": { "schedule": cron, "template": {} },
            "status": { "phase": "Enabled", "lastBackup": ago(200) } });
        bed.create(Kind::Schedule, schedule).await;
    }
    for (name, phase, begun, ended) in [("daily-1", "Completed", 200, 190), ("daily-2", "Failed", 100, 98)] {
        let labels = json!({ "velero.io/schedule-name": "daily" });
        let status = json!({ "phase": phase, "failureReason": if phase == "Failed" { "the disk was full" } else { "" },
            "startTimestamp": ago(begun), "completionTimestamp": ago(ended) });
        bed.create(Kind::Backup, json!({ "metadata": { "name": name, "labels": labels }, "status": status })).await;
    }
    let place = json!({ "metadata": { "name": "offsite" }, "spec": { "provider": "aws", "default": true,
            "objectStorage": { "bucket": "backups", "prefix": "shop" } },
        "status": { "phase": "Available", "lastValidationTime": ago(0) } });
    bed.create(Kind::Location, place).await;
    let mut page = page(&bed, &chromium).await;

    let row = cells(&mut page, "schedules", "daily").await;
    assert_eq!(row[1..5], [LATE, "missed 2h ago", "3h ago", "3h ago"]);
    let row = cells(&mut page, "schedules", "hourly").await;
    assert!(row[2] == "On time" && row[4] == "never" && row[5].starts_with("in "), "{row:?}");
    let row = cells(&mut page, "locations", "offsite").await;
    assert!(row[0].contains("default") && row[1] == "aws: backups/shop" && row[2] == "Available", "{row:?}");
    let row = cells(&mut page, "history", "backup/daily-1").await;
    assert_eq!(row[1..3], ["Done", "10m 0s"]);
    let row = cells(&mut page, "history", "backup/daily-2").await;
    assert_eq!(row[1..3], ["Failed", "2m 0s"]);
    assert!(row[4].contains("the disk was full"), "{row:?}");
    let bars = page
        .eval(
            "[...[...document.querySelectorAll('figure')].find(f => f.innerText.startsWith('Schedule daily')).querySelectorAll('rect')]
               .map(r => [r.classList[1], Number(r.getAttribute('height')), r.textContent])",
        )
        .await;
    let bars: Vec<(String, f64, String)> = serde_json::from_value(bars).unwrap();
    assert_eq!(bars.iter().map(|(tone, ..)| tone.as_str()).collect::<Vec<_>>(), ["good", "bad"], "in order of time");
    assert!((bars[0].1 / bars[1].1 - 5.0).abs() < 0.2, "ten minutes are five times two: {bars:?}");
    assert!(bars[0].2.contains("daily-1: 10m 0s"), "{bars:?}");
    page.picture("history").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_read_is_said_when_the_page_is_first_opened() {
    let chromium = require!(cache::system_program("chromium"));
    let bed = TestBed::new(false).await;
    bed.create(Kind::Backup, json!({ "metadata": { "name": "nightly" }, "status": { "phase": "InProgress" } })).await;
    let (ui, token) = bed.without_right_to("schedules").await;
    let mut page = Page::open(&chromium, (1360, 860)).await;
    page.visit(&format!("http://{}/#token={}", ui.address, token.reveal())).await;
    page.until("document.querySelector('.row')").await;
    let said = "document.querySelector('.unseen-list')";
    page.until(&format!("!{said}.hidden && {said}.textContent.includes('schedules: forbidden to this user')")).await;
}
