//! Repositories of volume data: created by the leader, opened with their Secret; only named snapshots are deleted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, stream};
use plimsoll_mover::{Backup, Job, MoverCommand, MoverKind, Outcome, Repository, RepositoryLocation, Secret, Work};
use plimsoll_progress::{Clock, Operation};
use plimsoll_repository::backup::{BackupOptions, Target};
use plimsoll_repository::format::crypto::Key;
use plimsoll_repository::format::key::KeyFile;
use plimsoll_repository::format::time::Time;
use plimsoll_repository::format::unpacked;
use plimsoll_repository::{Cancel, Id, LockFile, LockHolder, OpenOptions};
use plimsoll_store::{Location, Store};
use plimsoll_testkit::wait::WAIT_TIMEOUT;
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, on_both_clusters, phase, terminate_server};
use crate::killed::{has_no_open_operations, kill_points, name_of, terminate_if_running};

on_both_clusters! {
    a_repository_is_created_and_a_wrong_password_is_reported,
    a_repository_follows_a_changed_location_immediately,
    the_default_password_of_a_planted_repository_is_not_adopted,
    deleting_a_backup_deletes_its_snapshots_and_orphans_only_on_request,
    an_old_orphan_is_deleted_on_request_and_all_other_snapshots_are_kept,
    locks_are_shown_with_their_holders_and_stale_ones_are_removed,
}

const SECRET: &str = "velero-repo-credentials";

async fn ask_for(home: &Home<'_>, format: &str) -> String {
    let name = format!("shop-default-{format}");
    let repository = json!({ "apiVersion": "velero.io/v1", "kind": "BackupRepository", "metadata": { "name": name },
        "spec": { "volumeNamespace": "shop", "backupStorageLocation": "default", "repositoryType": format,
            "maintenanceFrequency": "1h0m0s" } });
    home.create(repository).await.unwrap();
    name
}

async fn wait_for_phase(home: &Home<'_>, name: &str, expected: &str, message: &str) {
    let mut last = Value::Null;
    eventually(&format!("{name} becomes {expected} ({message:?})\n"), async || {
        last = home.get("BackupRepository", name).await;
        phase(&last) == expected && last["status"]["message"].as_str().unwrap_or_default().contains(message)
    })
    .await;
}

async fn set_password(home: &Home<'_>, password: &str) {
    home.patch("Secret", SECRET, json!({ "data": { "repository-password": STANDARD.encode(password) } })).await;
}

async fn password(home: &Home<'_>) -> Vec<u8> {
    let secret = home.get("Secret", SECRET).await;
    STANDARD.decode(secret["data"]["repository-password"].as_str().unwrap()).unwrap()
}

fn formats() -> Vec<&'static str> {
    let kopia = plimsoll_testkit::cache::program("kopia").is_ok();
    if kopia { vec!["restic", "kopia"] } else { vec!["restic"] }
}

async fn a_repository_is_created_and_a_wrong_password_is_reported(bed: &Bed) {
    let home = bed.home("home").await;
    let server = home.server();
    for format in formats() {
        let name = ask_for(&home, format).await;
        wait_for_phase(&home, &name, "Ready", "").await;
        assert!(home.bucket.join(format).join("shop").is_dir(), "it lies where Velero puts it");
    }
    let first = password(&home).await;
    assert!(first.len() >= 32 && first != b"static-passw0rd", "it is a random password");
    let restic = home.get("BackupRepository", "shop-default-restic").await;
    let place = format!("{}/restic/shop", home.bucket.display());
    assert_eq!(restic["spec"]["resticIdentifier"], json!(place));
    set_password(&home, "another").await;
    for format in formats() {
        let words =
            format!("failed to open repository {}/{format}/shop: wrong password in the Secret", home.bucket.display());
        wait_for_phase(&home, &format!("shop-default-{format}"), "NotReady", &words).await;
    }
    let events = home.events("BackupRepository", "shop-default-restic").await;
    assert!(events.contains(&"Ready".into()) && events.contains(&"WrongRepositoryPassword".into()), "{events:?}");
    set_password(&home, std::str::from_utf8(&first).unwrap()).await;
    for format in formats() {
        wait_for_phase(&home, &format!("shop-default-{format}"), "Ready", "").await;
    }
    // A repository that is there and a Secret that is not: a new password would open nothing.
    terminate_server(server).await;
    home.delete("Secret", SECRET).await;
    let _server = home.server();
    wait_for_phase(&home, "shop-default-restic", "NotReady", "copy it from where the repository was made").await;
    assert!(home.find("Secret", SECRET).await.is_none());
}

async fn the_default_password_of_a_planted_repository_is_not_adopted(bed: &Bed) {
    let home = bed.home("home").await;
    let prefix = plimsoll_mover::repository_prefix(MoverKind::BuiltIn, "", "shop");
    let location = RepositoryLocation::directory(home.bucket.display().to_string(), prefix);
    let repository = Repository { location, password: Secret::new(plimsoll_mover::DEFAULT_PASSWORD) };
    run_job(&Job::new("plant", MoverKind::BuiltIn, repository, Work::Ensure)).await;
    let _server = home.server();
    let name = ask_for(&home, "restic").await;
    wait_for_phase(&home, &name, "NotReady", "--adopt-default-repository-password").await;
    assert!(home.find("Secret", SECRET).await.is_none());
}

async fn a_repository_follows_a_changed_location_immediately(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    for format in formats() {
        wait_for_phase(&home, &ask_for(&home, format).await, "Ready", "").await;
    }
    home.patch("BackupStorageLocation", "default", json!({ "spec": { "objectStorage": { "prefix": "new" } } })).await;
    for format in formats() {
        let place = home.bucket.join("new").join(format).join("shop");
        eventually("the repository is made where its location is now", async || place.is_dir()).await;
        wait_for_phase(&home, &format!("shop-default-{format}"), "Ready", "").await;
    }
    let place = format!("{}/new/restic/shop", home.bucket.display());
    eventually("its address is the new one", async || {
        home.get("BackupRepository", "shop-default-restic").await["spec"]["resticIdentifier"] == json!(place)
    })
    .await;
    let nowhere = json!({ "spec": { "objectStorage": { "bucket": "/proc/no-such-place", "prefix": "" } } });
    home.patch("BackupStorageLocation", "default", nowhere).await;
    for format in formats() {
        wait_for_phase(&home, &format!("shop-default-{format}"), "NotReady", "no-such-place").await;
    }
}

/// Runs a job on a repository as the agent would.
async fn work(home: &Home<'_>, kind: MoverKind, work: Work) -> Outcome {
    let prefix = plimsoll_mover::repository_prefix(kind, "", "shop");
    let place = RepositoryLocation::directory(home.bucket.display().to_string(), prefix);
    let repository = Repository { location: place, password: Secret::new(password(home).await) };
    let mut job = Job::new("test", kind, repository, work);
    if kind == MoverKind::Kopia {
        job.program = Some(plimsoll_testkit::cache::program("kopia").unwrap());
    }
    run_job(&job).await
}

async fn run_job(job: &Job) -> Outcome {
    let launch = MoverCommand { program: env!("CARGO_BIN_EXE_plimsoll").into(), arguments: vec!["mover".into()] };
    let operation = Operation::new("test", Clock::system());
    plimsoll_mover::spawn(&launch, job, &operation.root()).unwrap().wait().await.unwrap()
}

async fn snapshot(home: &Home<'_>, kind: MoverKind, content: &str) -> String {
    let volume = tempfile::tempdir().unwrap();
    std::fs::write(volume.path().join("file"), content).unwrap();
    let tags: BTreeMap<String, String> = [("pvc-uid".to_owned(), content.to_owned())].into();
    let backup = Backup::new(volume.path(), format!("shop/pod/{content}"), tags);
    match work(home, kind, Work::Backup(backup)).await {
        Outcome::Backup(outcome) => outcome.snapshot.unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn snapshots(home: &Home<'_>, kind: MoverKind) -> Vec<String> {
    match work(home, kind, Work::Snapshots).await {
        Outcome::Snapshots(all) => all.into_iter().map(|snapshot| snapshot.id).collect(),
        other => panic!("{other:?}"),
    }
}

/// A snapshot whose time is years ago.
async fn old_snapshot(home: &Home<'_>) -> String {
    let location = Location::directory(home.bucket.display().to_string(), "restic/shop");
    let password = password(home).await;
    let make = move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let store = {
            let _inside = runtime.enter();
            Store::open(&location).unwrap()
        };
        let options = OpenOptions::default();
        let opened = plimsoll_repository::Repository::open(store, runtime.handle().clone(), &password, options);
        let (repository, volume) = (Arc::new(opened.unwrap()), tempfile::tempdir().unwrap());
        std::fs::write(volume.path().join("file"), "of old").unwrap();
        let mut options = BackupOptions::new(Target::Content(volume.path().to_owned()));
        options.time = Some(Time::utc(1_600_000_000, 0));
        let operation = Operation::new("old", Clock::system());
        let made = repository.backup(&options, &operation.root(), &Cancel::default());
        made.unwrap().snapshot.to_string()
    };
    let made = tokio::task::spawn_blocking(make).await.unwrap();
    set_end_time(home, &made, "2020-09-13T12:30:00Z").await
}

/// Writes into a snapshot when it was done, which makes it another one.
async fn set_end_time(home: &Home<'_>, snapshot: &str, ended: &str) -> String {
    let key = repository_key(home).await;
    let path = home.bucket.join("restic/shop/snapshots").join(snapshot);
    let mut content: Value =
        serde_json::from_slice(&unpacked::decode(&std::fs::read(&path).unwrap(), &key).unwrap()).unwrap();
    content["summary"]["backup_end"] = json!(ended);
    let sealed = unpacked::encode(content.to_string().as_bytes(), 2, &key).unwrap();
    let id = Id::of(&sealed).to_string();
    std::fs::write(path.with_file_name(&id), sealed).unwrap();
    std::fs::remove_file(path).unwrap();
    id
}

async fn repository_key(home: &Home<'_>) -> Key {
    let keys = home.bucket.join("restic/shop/keys");
    let key = std::fs::read_dir(keys).unwrap().next().unwrap().unwrap().path();
    KeyFile::parse(&std::fs::read(key).unwrap()).unwrap().unlock(&password(home).await).unwrap()
}

/// A lock of a process on some machine, written just now.
async fn put_lock(home: &Home<'_>, hostname: &str, pid: u32) -> PathBuf {
    let repository = home.bucket.join("restic/shop");
    let key = repository_key(home).await;
    let (hostname, username) = (hostname.to_owned(), "operator".to_owned());
    let file = LockFile { time: Time::now(), exclusive: false, hostname, username, pid, uid: 0, gid: 0 };
    let sealed = unpacked::encode(&serde_json::to_vec(&file).unwrap(), 2, &key).unwrap();
    let path = repository.join("locks").join(Id::of(&sealed).to_string());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, sealed).unwrap();
    path
}

/// Records that these snapshots belong to a backup, as a backup of volumes does.
fn record_snapshots(bucket: &Path, backup: &str, snapshots: &[(&str, &str)]) {
    let transfer = |(format, id): &(&str, &str)| {
        json!({ "apiVersion": "velero.io/v1", "kind": "PodVolumeBackup", "metadata": { "name": format!("{backup}-{id}") },
            "spec": { "pod": { "namespace": "shop", "name": "pod" }, "volume": "v", "uploaderType": format,
                "backupStorageLocation": "default" },
            "status": { "phase": "Completed", "snapshotID": id } })
    };
    let all: Vec<Value> = snapshots.iter().map(transfer).collect();
    let file = bucket.join(format!("backups/{backup}/{backup}-podvolumebackups.json.gz"));
    std::fs::write(file, plimsoll_archive::codec::gzip_json(&all).unwrap()).unwrap();
}

/// A home with backups `b` and `other` that each have a snapshot, and an orphaned snapshot.
async fn filled<'a>(bed: &'a Bed, name: &str, format: &str, kind: MoverKind) -> (Home<'a>, [String; 3]) {
    let home = bed.home(name).await;
    let server = home.server();
    for backup in ["b", "other"] {
        home.backup(backup, json!({ "includedNamespaces": [bed.ns("shop")] })).await;
        assert_eq!(phase(&home.ended("Backup", backup).await), "Completed", "{}", home.log());
    }
    let repository = ask_for(&home, format).await;
    wait_for_phase(&home, &repository, "Ready", "").await;
    eventually("all records are closed", async || has_no_open_operations(&home).await).await;
    terminate_server(server).await;
    let mut made = Vec::new();
    for content in ["mine", "others", "unowned"] {
        made.push(snapshot(&home, kind, content).await);
    }
    record_snapshots(&home.bucket, "b", &[(format, &made[0])]);
    record_snapshots(&home.bucket, "other", &[(format, &made[1])]);
    (home, made.try_into().unwrap())
}

async fn ask_to_delete(home: &Home<'_>, backup: &str) {
    home.create(json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "metadata": { "name": "d" },
        "spec": { "backupName": backup } }))
        .await
        .unwrap();
}

async fn plimsoll(home: &Home<'_>, arguments: &[&str]) -> (bool, String) {
    let output = home.command(arguments).output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

async fn deleting_a_backup_deletes_its_snapshots_and_orphans_only_on_request(bed: &Bed) {
    bed.application("shop", 3).await;
    for (format, kind) in [("restic", MoverKind::BuiltIn), ("kopia", MoverKind::Kopia)] {
        if !formats().contains(&format) {
            continue;
        }
        let (home, [mine, others, unowned]) = filled(bed, &format!("home-{format}"), format, kind).await;
        let server = home.server();
        ask_to_delete(&home, "b").await;
        eventually("the backup is deleted", async || home.find("Backup", "b").await.is_none()).await;
        let left = snapshots(&home, kind).await;
        assert!(!left.contains(&mine) && left.contains(&others) && left.contains(&unowned), "{left:?}");
        let name = format!("shop-default-{format}");
        let (_, text) = plimsoll(&home, &["repo", "orphans"]).await;
        assert!(text.contains(&unowned[..8]) && !text.contains(&others[..8]), "{text}");
        let (well, text) =
            plimsoll(&home, &["repo", "orphans", &name, "--delete", "--older-than", "1h", "--confirm"]).await;
        assert!(well && text.contains("no orphans"), "it is too young to go: {text}");
        assert_eq!(snapshots(&home, kind).await.len(), 2);
        let (well, text) =
            plimsoll(&home, &["repo", "orphans", &name, "--delete", "--older-than", "1s", "--confirm"]).await;
        assert!(!well && text.contains("younger than one hour"), "{text}");
        let (well, text) = plimsoll(&home, &["repo", "get"]).await;
        assert!(well && text.lines().any(|line| line.contains(&name) && line.contains("Ready")), "{text}");
        if plimsoll_testkit::cache::program("velero").is_ok() {
            let text = home.velero(&["repo", "get"]).await;
            assert!(text.lines().any(|line| line.contains(&name) && line.contains("Ready")), "{text}");
        }
        let (well, text) = plimsoll(&home, &["repo", "describe", &name]).await;
        assert!(well && text.contains("Snapshots:") && text.contains("Ready"), "{text}");
        terminate_server(server).await;
    }
}

async fn an_old_orphan_is_deleted_on_request_and_all_other_snapshots_are_kept(bed: &Bed) {
    bed.application("shop", 3).await;
    let (home, [mine, others, unowned]) = filled(bed, "home-orphans", "restic", MoverKind::BuiltIn).await;
    let old = old_snapshot(&home).await;
    let old_and_known = old_snapshot(&home).await;
    record_snapshots(&home.bucket, "b", &[("restic", &mine), ("restic", &old_and_known)]);
    let server = home.server();
    let name = "shop-default-restic";
    let (well, text) = plimsoll(&home, &["repo", "orphans", name, "--older-than", "720h"]).await;
    assert!(well && text.contains("no backup refers to 1 of 5 snapshots") && text.contains(&old), "{text}");
    assert_eq!(snapshots(&home, MoverKind::BuiltIn).await.len(), 5, "a report removes nothing");
    let delete = ["repo", "orphans", name, "--delete", "--older-than", "720h", "--confirm"];
    let open_to = async |mode: &str| {
        home.patch("BackupStorageLocation", "default", json!({ "spec": { "accessMode": mode } })).await;
    };
    open_to("ReadOnly").await;
    for removes in [&delete[..], &["repo", "unlock", name]] {
        let (well, text) = plimsoll(&home, removes).await;
        assert!(!well && text.contains("location default is read-only"), "{text}");
    }
    assert_eq!(snapshots(&home, MoverKind::BuiltIn).await.len(), 5, "another owner has to remove it");
    open_to("ReadWrite").await;
    let (well, text) = plimsoll(&home, &delete).await;
    assert!(well && text.contains("1 orphans deleted"), "{text}");
    let left = snapshots(&home, MoverKind::BuiltIn).await;
    assert!(!left.contains(&old), "{left:?}");
    assert!([&mine, &others, &unowned, &old_and_known].into_iter().all(|kept| left.contains(kept)), "{left:?}");
    terminate_server(server).await;
}

async fn locks_are_shown_with_their_holders_and_stale_ones_are_removed(bed: &Bed) {
    let home = bed.home("home-locks").await;
    let server = home.server();
    let name = ask_for(&home, "restic").await;
    wait_for_phase(&home, &name, "Ready", "").await;
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let ours = LockHolder::current(None).unwrap().to_string();
    // No process has this number: the system gives out smaller ones.
    let dead_process = 0x7fff_fff0;
    let gone = put_lock(&home, &ours, dead_process).await;
    let foreign = put_lock(&home, "another-machine", 7).await;
    // Another cluster's, or a restic's: whether its process lives cannot be known here.
    let namesake = put_lock(&home, &here, dead_process).await;
    let (well, text) = plimsoll(&home, &["repo", "describe", &name]).await;
    assert!(well && text.contains("another-machine process 7") && text.contains("unknown"), "{text}");
    assert!(
        !text.contains(&ours) && text.contains(&format!("{here} process {dead_process}")),
        "a readable name: {text}"
    );
    // The leader may have looked by itself in between.
    assert_eq!(gone.exists(), text.contains("ours, gone"), "{text}");
    assert!(foreign.exists(), "looking removes no stranger's: {text}");
    let (well, text) = plimsoll(&home, &["repo", "unlock", &name]).await;
    assert!(well, "{text}");
    assert!(!gone.exists() && foreign.exists(), "a stranger's lock has to grow old: {text}");
    assert!(namesake.exists(), "an equal name is a stranger's too: {text}");
    terminate_server(server).await;
    // A leader looks by itself.
    let gone = put_lock(&home, &ours, dead_process).await;
    let server = home.server();
    eventually("the leader removes the lock of a process that is gone", async || !gone.exists()).await;
    assert!(foreign.exists() && namesake.exists());
    terminate_server(server).await;
}

/// On the embedded cluster alone: nothing here depends on which cluster it is, and the points are many.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_at_any_point_leaves_a_repository_that_opens() {
    let bed = &Bed::local().await;
    bed.application("shop", 3).await;
    let points = {
        let home = bed.home("traced").await;
        let trace = bed.directory.path().join("trace-repository");
        let name = ask_for(&home, "restic").await;
        let server = home.server_with("1m", &[("PLIMSOLL_KILL_TRACE", trace.to_str().unwrap())]);
        wait_for_phase(&home, &name, "Ready", "").await;
        terminate_server(server).await;
        let all = kill_points(&std::fs::read_to_string(trace).unwrap());
        all.into_iter().filter(|point| point.starts_with("repository.")).collect::<Vec<_>>()
    };
    for expected in ["repository.secret.before:1", "repository.ensure.after:1", "repository.status.before:1"] {
        assert!(points.iter().any(|point| point == expected), "{points:?}");
    }
    stream::iter(points)
        .map(|point| async move {
            let home = bed.home(&name_of(&point)).await;
            let name = ask_for(&home, "restic").await;
            let mut server = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", &point)]);
            let status = tokio::time::timeout(WAIT_TIMEOUT, server.wait()).await;
            assert!(!status.unwrap_or_else(|_| panic!("{point} was not passed")).unwrap().success());
            let next = home.server_with_short_lease(&[]);
            wait_for_phase(&home, &name, "Ready", "").await;
            assert!(snapshots(&home, MoverKind::BuiltIn).await.is_empty(), "killed at {point}");
            terminate_if_running(next).await;
        })
        .buffer_unordered(2)
        .collect::<Vec<()>>()
        .await;
    for point in ["repository.forget.before:1", "repository.forget.after:1"] {
        let (home, [mine, others, _]) = filled(bed, &name_of(point), "restic", MoverKind::BuiltIn).await;
        ask_to_delete(&home, "b").await;
        let mut server = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", point)]);
        let status = tokio::time::timeout(WAIT_TIMEOUT, server.wait()).await;
        assert!(!status.unwrap_or_else(|_| panic!("{point} was not passed")).unwrap().success());
        let next = home.server_with_short_lease(&[]);
        eventually("the backup is deleted", async || home.find("Backup", "b").await.is_none()).await;
        let left = snapshots(&home, MoverKind::BuiltIn).await;
        assert!(!left.contains(&mine) && left.contains(&others), "killed at {point}: {left:?}");
        terminate_if_running(next).await;
    }
}
