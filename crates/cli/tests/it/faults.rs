//! Object storage and API servers that fail on the way: waited for, visibly, and survived; or named.

use std::process::Command;

use http::Method;
use plimsoll_testkit::peers::S3Server;
use plimsoll_testkit::proxy::{ActiveFault, Fault, Requests};
use plimsoll_testkit::{Proxy, cache, require};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, phase, s3_keys};

const IMPATIENT: [&str; 2] = ["--store-idle-timeout", "1s"];

async fn operations(home: &Home<'_>) -> String {
    home.list("Operation").await.iter().map(|operation| operation.data.to_string()).collect()
}

async fn location(home: &Home<'_>, phase: &str) -> Value {
    let mut last = Value::Null;
    eventually(&format!("the location is {phase}"), async || {
        last = home.get("BackupStorageLocation", "default").await;
        last["status"]["phase"] == phase
    })
    .await;
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn object_storage_that_refuses_hangs_or_cuts_streams_is_waited_for_visibly() {
    require!(cache::program("versitygw"));
    let bed = Bed::local().await;
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    let _server = home.server_through(&bed.kubeconfig, &IMPATIENT, &[]);
    let shop = bed.application("shop", 30).await;
    location(&home, "Available").await;
    let cases = [("refused", Fault::Status(500)), ("cut", Fault::TruncateRequest(100)), ("lost", Fault::DropResponse)];
    for (name, fault) in cases {
        let active =
            proxy.inject(Requests::with_method(Method::PUT).containing(format!("backups/{name}/")).first(2), fault);
        home.backup(name, json!({ "includedNamespaces": [shop] })).await;
        let backup = home.ended("Backup", name).await;
        assert_eq!((phase(&backup), active.hits()), ("Completed", 2), "{name}: {backup:#}");
    }
    let hanging = proxy.inject(Requests::with_method(Method::PUT).containing("backups/hanging/"), Fault::Hang);
    home.backup("hanging", json!({ "includedNamespaces": [shop] })).await;
    eventually("the operation says that it waits for the store", async || {
        // An earlier message may still be shown.
        let is_running = phase(&home.get("Backup", "hanging").await) == "InProgress";
        is_running && operations(&home).await.contains("s3://bucket-home")
    })
    .await;
    drop(hanging);
    let backup = home.ended("Backup", "hanging").await;
    assert_eq!((phase(&backup), &backup["status"]["errors"]), ("Completed", &json!(0)), "{backup:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn object_storage_that_does_not_allow_writing_fails_the_backup_by_name() {
    require!(cache::program("versitygw"));
    let bed = Bed::local().await;
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    let _server = home.server();
    let shop = bed.application("shop", 3).await;
    location(&home, "Available").await;
    let _denied = proxy.inject(Requests::with_method(Method::PUT), Fault::Status(403));
    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    let backup = home.ended("Backup", "b").await;
    let reason = backup["status"]["failureReason"].as_str().unwrap_or_default();
    assert_eq!(phase(&backup), "Failed", "{backup:#}");
    assert!(reason.contains("s3://bucket-home") && reason.contains("access denied to backups/b/"), "{reason}");
    assert!(!home.bucket.join("backups/b/velero-backup.json").exists());
}

/// A file system of this size, for as long as it is held.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(path: &std::path::Path) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(path).status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(path.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_to_a_full_location_fails_and_leaves_no_partial_files() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let disk = SmallDisk::mount(&home.bucket)
        .ok_or_else(|| plimsoll_testkit::Unavailable::new("mount", "a tmpfs cannot be mounted"));
    let _disk = require!(disk);
    let _server = home.server();
    let shop = bed.application("shop", 3).await;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'!' + u8::try_from(state % 90).unwrap())
    };
    let noise: String = (0..300_000).map(|_| next()).collect();
    home.create(
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "noise" }, "data": { "noise": noise } }),
    )
    .await
    .unwrap();
    home.backup("b", json!({ "includedNamespaces": [shop, home.namespace] })).await;
    let backup = home.ended("Backup", "b").await;
    let reason = backup["status"]["failureReason"].as_str().unwrap_or_default();
    assert!(phase(&backup) == "Failed" && reason.contains("no space left"), "{backup:#}");
    let left: Vec<_> = std::fs::read_dir(home.bucket.join("backups/b"))
        .map(|all| all.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    assert_eq!(left, Vec::<std::path::PathBuf>::new(), "what could not be finished is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_keys_make_the_location_unavailable_and_name_the_reason() {
    require!(cache::program("versitygw"));
    let bed = Bed::local().await;
    let store = S3Server::start("127.0.0.1").unwrap();
    let home = bed.home_on_s3("home", &store, store.endpoint()).await;
    let keys = json!({ "stringData": { "cloud": s3_keys("nothing") } });
    home.patch("Secret", "keys", keys).await;
    let _server = home.server();
    let location = location(&home, "Unavailable").await;
    let message = location["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("s3://bucket-home") && message.contains("credentials"), "{location:#}");
    assert!(!location.to_string().contains("nothing"), "no secret in a message: {location:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_refuses_cuts_or_disappears_is_awaited() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let bed = Bed::real(cluster).await;
    let home = bed.home("home").await;
    let proxy = Proxy::for_api_server(cluster).await.unwrap();
    let _server = home.server_through(proxy.kubeconfig().unwrap(), &["--lease-duration", "1m"], &[]);
    let shop = bed.application("shop", 30).await;
    location(&home, "Available").await;
    let lists = |what: &str| Requests::with_method(Method::GET).containing(format!("/namespaces/{shop}/{what}?"));
    let faults = [
        proxy.inject(lists("configmaps").first(2), Fault::Status(429)),
        proxy.inject(lists("secrets").first(2), Fault::TruncateResponse(300)),
        proxy.inject(Requests::with_method(Method::PUT).containing("/configmaps/").first(2), Fault::Status(503)),
        proxy.inject(lists("serviceaccounts").first(2), Fault::Status(500)),
        proxy.inject(Requests::with_method(Method::PATCH).containing("/backups/b").first(2), Fault::CloseConnection),
        proxy.inject(Requests::with_method(Method::PUT).containing("/operations/").first(2), Fault::Status(409)),
    ];
    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!((phase(&backup), &backup["status"]["errors"]), ("Completed", &json!(0)), "{backup:#}\n{}", home.log());
    let hits: Vec<_> = faults.iter().map(ActiveFault::hits).collect();
    assert!(hits[..5].iter().all(|hits| *hits > 0), "every fault was met: {hits:?}");
    drop(faults);

    let slow = proxy.inject(lists("secrets"), Fault::Hang);
    home.backup("gone", json!({ "includedNamespaces": [shop] })).await;
    eventually("the second backup runs", async || phase(&home.get("Backup", "gone").await) == "InProgress").await;
    proxy.close();
    drop(slow);
    proxy.open();
    let backup = home.ended("Backup", "gone").await;
    assert_eq!((phase(&backup), &backup["status"]["errors"]), ("Completed", &json!(0)), "{backup:#}\n{}", home.log());
    bed.clear().await;
}

/// Every request of a server is retried.
#[tokio::test(flavor = "multi_thread")]
async fn backup_restore_and_deletion_survive_an_api_server_that_refuses_some_requests() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let shop = bed.application("shop", 12).await;
    let before = bed.contents(&shop).await;
    let proxy = Proxy::for_kubeconfig("127.0.0.1:0", &bed.kubeconfig).await.unwrap();
    let _server = home.server_through(proxy.kubeconfig().unwrap(), &["--lease-duration", "1m"], &[]);
    location(&home, "Available").await;
    let refused = proxy.inject(Requests::all().one_in(5), Fault::Status(503));
    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    let backup = home.ended("Backup", "b").await;
    let count = |object: &Value, field: &str| object["status"][field].as_u64().unwrap_or(0);
    assert_eq!((phase(&backup), count(&backup, "errors")), ("Completed", 0), "{backup:#}\n{}", home.log());
    bed.delete_namespace(&shop).await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!((phase(&restore), count(&restore, "errors")), ("Completed", 0), "{restore:#}\n{}", home.log());
    assert_eq!(bed.contents(&shop).await, before, "{}", home.log());
    let request = json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "metadata": { "name": "d" },
        "spec": { "backupName": "b" } });
    home.create(request).await.unwrap();
    eventually("the backup is deleted", async || {
        let request = home.find("DeleteBackupRequest", "d").await.unwrap_or_default();
        assert!(request["status"]["errors"].is_null(), "{request:#}\n{}", home.log());
        home.find("Backup", "b").await.is_none()
    })
    .await;
    assert!(refused.hits() > 10, "{}", refused.hits());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_group_that_does_not_answer_is_skipped_and_reported() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let bed = Bed::real(cluster).await;
    let home = bed.home("home").await;
    let proxy = Proxy::for_api_server(cluster).await.unwrap();
    let _server = home.server_through(proxy.kubeconfig().unwrap(), &[], &[]);
    let shop = bed.application("shop", 3).await;
    location(&home, "Available").await;
    let _down = proxy.inject(Requests::with_method(Method::GET).containing("/apis/autoscaling/v2"), Fault::Status(503));
    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!((phase(&backup), &backup["status"]["warnings"]), ("Completed", &json!(1)), "{backup:#}");
    assert!(
        home.messages("b", "warnings").contains("API autoscaling/v2 is excluded"),
        "{}",
        home.messages("b", "warnings")
    );
    bed.clear().await;
}
