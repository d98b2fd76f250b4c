//! Killed at every point the code names, and on.
//!
//! An undisturbed run is traced first: it gives the kill points and the expected result. Then the server is killed once
//! at each of them, another one is started, and the ends are compared.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use plimsoll_testkit::wait::WAIT_TIMEOUT;
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, is_ended, on_both_clusters, phase, terminate_server};

on_both_clusters! {
    a_backup_killed_at_any_point_ends_as_an_undisturbed_one,
    a_restore_killed_at_any_point_ends_as_an_undisturbed_one,
    a_second_server_waits_and_takes_over_when_the_first_one_dies,
    a_lost_journal_fails_the_operation,
    a_deleted_operation_is_recreated_and_the_work_resumes,
}

const OBJECTS: usize = 45;
const AT_ONCE: usize = 4;
/// Coprime to the pairs of points before and after an effect: both kinds are in the sample.
const SAMPLE_STEP: usize = 5;

/// Points that belong to the server, not to the work: which of them a run passes depends on time.
pub fn kill_points(trace: &str) -> Vec<String> {
    let mut passages: BTreeMap<&str, u64> = BTreeMap::new();
    for line in trace.lines() {
        *passages.entry(line).or_default() += 1;
    }
    let mut points = Vec::new();
    for (point, count) in passages {
        points.push(format!("{point}:1"));
        if count > 2 {
            points.push(format!("{point}:{}", count / 2 + 1));
        }
    }
    points
}

/// The points at which a run on this cluster is killed: all of them on the embedded one, a fixed sample on a real one, where a
/// run takes several times as long and only what the cluster itself does can differ. `make test-full` takes all there too.
pub fn points_to_kill(bed: &Bed, trace: &str) -> Vec<String> {
    let all = kill_points(trace);
    if bed.is_local() || std::env::var_os("PLIMSOLL_TEST_FULL").is_some() {
        return all;
    }
    all.into_iter().step_by(SAMPLE_STEP).collect()
}

pub fn name_of(point: &str) -> String {
    point.replace(['.', ':'], "-")
}

/// Counters never decrease, and an incomplete backup never looks complete.
#[derive(Default)]
struct Watch {
    settled: u64,
    percent: f64,
}

impl Watch {
    fn see(&mut self, object: &Value) {
        let progress = &object["status"]["progress"];
        let field = |name: &str| progress[name].as_u64().unwrap_or(0);
        let done = field("itemsBackedUp") + field("itemsRestored") + field("itemsSkipped") + field("itemsFailed");
        assert!(done >= self.settled, "counters fell from {} to {done}: {object:#}", self.settled);
        self.settled = done;
        let Some(percent) = object["status"]["plimsoll"]["percent"].as_str() else { return };
        let percent: f64 = percent.trim_start_matches(['~', '≥']).parse().unwrap();
        assert!(percent >= self.percent, "the percentage fell from {} to {percent}: {object:#}", self.percent);
        assert!(percent < 100.0 || is_ended(object), "100 % before the end: {object:#}");
        self.percent = percent;
    }
}

/// Runs a server that dies at `point`, starts another one once it has, and waits for the end of the subject. Without a point
/// the server is left in peace, and what it passes is traced.
pub async fn run_with_kill(home: &Home<'_>, point: Option<&str>, kind: &str, name: &str) -> (Value, bool) {
    let trace = home.bed.directory.path().join(format!("trace-{}-{kind}", home.namespace)).display().to_string();
    let mut server = match point {
        Some(point) => home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", point)]),
        None => home.server_with("1m", &[("PLIMSOLL_KILL_TRACE", &trace)]),
    };
    let mut died = false;
    let mut watch = Watch::default();
    let mut last = Value::Null;
    eventually(&format!("{kind} {name} has ended, killed at {point:?}"), async || {
        // Also a server that lost its office on a busy machine is followed by another one.
        if point.is_some()
            && let Ok(Some(status)) = server.try_wait()
        {
            assert!(!status.success(), "the server ended by itself\n{}", home.log());
            died = true;
            server = home.server_with_short_lease(&[]);
        }
        last = home.get(kind, name).await;
        watch.see(&last);
        // The last points come after the end of the subject: the record and the journal have to go too.
        is_ended(&last) && (died || point.is_none()) && has_no_open_operations(home).await
    })
    .await;
    terminate_if_running(server).await;
    let counts = ["Backup", "Restore"].contains(&kind) && phase(&last) == "Completed";
    assert!(!counts || watch.settled > 0, "no progress was written: {last:#}");
    (last, died)
}

pub async fn terminate_if_running(mut server: tokio::process::Child) {
    if let Ok(None) = server.try_wait() {
        terminate_server(server).await;
    }
}

/// No operation is open and no journal is left.
pub async fn has_no_open_operations(home: &Home<'_>) -> bool {
    let open = home.list("Operation").await.into_iter().filter(|operation| {
        let state = operation.data.pointer("/status/state").and_then(Value::as_str).unwrap_or_default();
        !["Succeeded", "PartiallyFailed", "Failed", "Cancelled"].contains(&state)
    });
    let journal = home.list("ConfigMap").await.into_iter().filter(|map| {
        map.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("plimsoll.dev/journal-of"))
    });
    open.count() == 0 && journal.count() == 0
}

pub fn trace_of(home: &Home<'_>, kind: &str) -> String {
    std::fs::read_to_string(home.bed.directory.path().join(format!("trace-{}-{kind}", home.namespace))).unwrap()
}

/// What must be the same, whatever happened on the way. A real cluster puts objects of its own into a new namespace: whether
/// one of those was restored or was there already is a race, so the two are counted together.
pub fn essence(object: &Value) -> Value {
    let (status, progress) = (&object["status"], &object["status"]["progress"]);
    let field = |name: &str| progress[name].as_u64().unwrap_or(0);
    json!({
        "phase": status["phase"], "errors": status["errors"], "warnings": status["warnings"],
        "total": progress["totalItems"], "failed": progress["itemsFailed"], "percent": status["plimsoll"]["percent"],
        "there": field("itemsBackedUp") + field("itemsRestored") + field("itemsSkipped"),
    })
}

fn archive_of(home: &Home<'_>, backup: &str) -> Vec<String> {
    let file = home.bucket.join(format!("backups/{backup}/{backup}.tar.gz"));
    let listing = std::process::Command::new("tar").arg("-tzf").arg(&file).output().unwrap();
    assert!(listing.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&listing.stderr));
    let mut names: Vec<_> = String::from_utf8(listing.stdout).unwrap().lines().map(str::to_owned).collect();
    names.sort();
    names
}

fn files_of(home: &Home<'_>) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(home.bucket.join("backups/b"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The subject after a run that completes, and the points at which to kill the next ones.
async fn run_undisturbed(model: &Home<'_>, kind: &str, name: &str) -> (Value, Vec<String>) {
    let (subject, _) = run_with_kill(model, None, kind, name).await;
    assert_eq!(phase(&subject), "Completed", "{subject:#}\n{}", model.log());
    let trace = trace_of(model, kind);
    assert!(kill_points(&trace).len() > 20, "the trace has only {trace}");
    (subject, points_to_kill(model.bed, &trace))
}

/// Runs once for each point. `run` returns whether the server died there; it must.
pub async fn kill_at_each<Run: Future<Output = bool>>(points: Vec<String>, run: impl Fn(String) -> Run) {
    let deaths: Vec<bool> = stream::iter(points).map(run).buffer_unordered(AT_ONCE).collect().await;
    assert!(deaths.iter().all(|died| *died), "every one of them was killed: {deaths:?}");
}

async fn a_backup_killed_at_any_point_ends_as_an_undisturbed_one(bed: &Bed) {
    bed.application("shop", OBJECTS).await;
    let spec = || json!({ "includedNamespaces": [bed.ns("shop")] });
    let model = bed.home("model").await;
    model.backup("b", spec()).await;
    let (undisturbed, points) = run_undisturbed(&model, "Backup", "b").await;

    let (model, undisturbed) = (&model, &undisturbed);
    kill_at_each(points, |point| async move {
        let home = bed.home(&name_of(&point)).await;
        home.backup("b", spec()).await;
        let (backup, died) = run_with_kill(&home, Some(&point), "Backup", "b").await;
        assert_eq!(essence(&backup), essence(undisturbed), "killed at {point}\n{}", home.log());
        assert_eq!(archive_of(&home, "b"), archive_of(model, "b"), "killed at {point}");
        assert_eq!(files_of(&home), files_of(model), "killed at {point}");
        died
    })
    .await;
}

async fn a_restore_killed_at_any_point_ends_as_an_undisturbed_one(bed: &Bed) {
    bed.application("shop", OBJECTS).await;
    let before = bed.contents("shop").await;
    let spec = |target: &str| json!({ "backupName": "b", "namespaceMapping": { bed.ns("shop"): bed.ns(target) } });
    let model = prepared(bed, "model").await;
    model.restore("r", spec("shop-model")).await;
    let (undisturbed, points) = run_undisturbed(&model, "Restore", "r").await;
    assert_eq!(bed.contents("shop-model").await, before);

    let (before, undisturbed) = (&before, &undisturbed);
    kill_at_each(points, |point| async move {
        let target = format!("shop-{}", name_of(&point));
        let home = prepared(bed, &name_of(&point)).await;
        home.restore("r", spec(&target)).await;
        let (restore, died) = run_with_kill(&home, Some(&point), "Restore", "r").await;
        assert_eq!(essence(&restore), essence(undisturbed), "killed at {point}\n{}", home.log());
        assert_eq!(&bed.contents(&target).await, before, "killed at {point}");
        died
    })
    .await;
}

/// A home with a backup to restore from, and no server.
async fn prepared<'a>(bed: &'a Bed, name: &str) -> Home<'a> {
    let home = bed.home(name).await;
    let server = home.server();
    home.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}", home.log());
    eventually("the backup's record is closed", async || has_no_open_operations(&home).await).await;
    terminate_server(server).await;
    home
}

async fn a_second_server_waits_and_takes_over_when_the_first_one_dies(bed: &Bed) {
    let home = bed.home("pair").await;
    bed.application("shop", 9).await;
    let mut first = home.server_with_short_lease(&[]);
    home.backup("one", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    home.ended("Backup", "one").await;
    eventually("the first one has closed its record", async || has_no_open_operations(&home).await).await;
    let _second = home.server_with_short_lease(&[]);
    first.kill().await.unwrap();
    home.backup("two", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    assert_eq!(phase(&home.ended("Backup", "two").await), "Completed", "{}", home.log());
    let epochs = |name: &str| {
        let name = name.to_owned();
        let home = &home;
        async move { home.get("Operation", &name).await["status"]["epoch"].as_u64().unwrap() }
    };
    assert!(epochs("backup-two").await > epochs("backup-one").await);
}

async fn a_lost_journal_fails_the_operation(bed: &Bed) {
    let home = bed.home("lost").await;
    bed.application("shop", 9).await;
    home.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    let mut server = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", "backup.part.before")]);
    tokio::time::timeout(WAIT_TIMEOUT, server.wait()).await.unwrap().unwrap();
    for map in home.list("ConfigMap").await {
        home.delete("ConfigMap", map.metadata.name.as_deref().unwrap()).await;
    }
    let _next = home.server();
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Failed");
    let reason = backup["status"]["failureReason"].as_str().unwrap();
    assert!(reason.contains("journal of backup-b is lost"), "{reason}");
}

async fn a_deleted_operation_is_recreated_and_the_work_resumes(bed: &Bed) {
    let home = bed.home("lost-record").await;
    bed.application("shop", 9).await;
    home.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    let mut server = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", "backup.part.before")]);
    tokio::time::timeout(WAIT_TIMEOUT, server.wait()).await.unwrap().unwrap();
    home.delete("Operation", "backup-b").await;
    let _next = home.server();
    assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}", home.log());
    assert_eq!(home.get("Operation", "backup-b").await["status"]["attempt"], 1);
}
