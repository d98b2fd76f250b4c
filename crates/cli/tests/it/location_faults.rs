//! Object storage that fails while a location is checked, synced or emptied: retried, and shown.

use http::Method;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Proxy, cache, require};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, phase};

const IMPATIENT: [&str; 2] = ["--store-idle-timeout", "1s"];

async fn location(home: &Home<'_>, what: &str, holds: impl Fn(&Value) -> bool) {
    eventually(what, async || holds(&home.get("BackupStorageLocation", "default").await)).await;
}

fn message(location: &Value) -> &str {
    location["status"]["message"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_location_is_unavailable_until_it_recovers() {
    require!(cache::program("versitygw"));
    let bed = Bed::local().await;
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    home.patch("BackupStorageLocation", "default", json!({ "spec": { "validationFrequency": "1s" } })).await;
    let _server = home.server_through(&bed.kubeconfig, &IMPATIENT, &[]);
    location(&home, "it is available", |location| phase(location) == "Available").await;
    for fault in [Fault::Status(500), Fault::Hang, Fault::TruncateResponse(5)] {
        let active = proxy.inject(Requests::with_method(Method::GET), fault);
        location(&home, &format!("{fault:?} makes it unavailable, with the reason"), |location| {
            phase(location) == "Unavailable" && message(location).contains("s3://bucket-home")
        })
        .await;
        drop(active);
        location(&home, "it is available again", |location| phase(location) == "Available").await;
    }
    let events = home.events("BackupStorageLocation", "default").await;
    assert!(["Available", "Unavailable"].iter().all(|reason| events.contains(&(*reason).to_owned())), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_api_server_does_not_change_the_phase_of_a_location() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    home.patch("BackupStorageLocation", "default", json!({ "spec": { "validationFrequency": "1s" } })).await;
    let proxy = Proxy::for_kubeconfig("127.0.0.1:0", &bed.kubeconfig).await.unwrap();
    let _server = home.server_through(proxy.kubeconfig().unwrap(), &["--lease-duration", "1m"], &[]);
    location(&home, "it is available", |location| phase(location) == "Available").await;
    let secrets = Requests::with_method(Method::GET).containing("/secrets/cloud-credentials");
    let refused = proxy.inject(secrets, Fault::Status(503));
    // This line ends a check: whatever it would have recorded is recorded.
    eventually("the log says why the location was not checked", async || {
        home.log().lines().any(|line| line.contains("failed to check") && line.contains("cloud-credentials"))
    })
    .await;
    assert!(refused.hits() > 0);
    let known = home.get("BackupStorageLocation", "default").await;
    assert_eq!(phase(&known), "Available", "{known:#}");
    // A sync that was due meanwhile needs the Secret too.
    let sync_waits = "backups cannot be synced: failed to read secret cloud-credentials: ";
    assert!(message(&known).is_empty() || message(&known).starts_with(sync_waits), "{known:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_and_a_deletion_survive_failing_object_storage() {
    require!(cache::program("versitygw"));
    let bed = Bed::local().await;
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    home.patch("BackupStorageLocation", "default", json!({ "spec": { "backupSyncPeriod": "1s" } })).await;
    let shop = bed.application("shop", 6).await;
    let _server = home.server_through(&bed.kubeconfig, &IMPATIENT, &[]);
    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}", home.log());

    let listing = proxy.inject(Requests::with_method(Method::GET).containing("prefix=backups"), Fault::Status(500));
    location(&home, "a sync that fails is shown", |location| message(location).contains("cannot be synced")).await;
    assert!(home.find("Backup", "b").await.is_some(), "nothing is removed");
    drop(listing);
    location(&home, "the next one succeeds", |location| message(location).is_empty()).await;

    let cut = proxy.inject(
        Requests::with_method(Method::GET).containing("velero-backup.json").first(2),
        Fault::TruncateResponse(20),
    );
    home.delete("Backup", "b").await;
    eventually("the backup is synced in spite of cut answers", async || home.find("Backup", "b").await.is_some()).await;
    assert!(cut.hits() > 0);

    let refused = proxy.inject(Requests::with_method(Method::POST).containing("delete").first(2), Fault::Status(500));
    let request = json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "metadata": { "name": "d" },
        "spec": { "backupName": "b" } });
    home.create(request).await.unwrap();
    eventually("the backup is deleted", async || home.find("Backup", "b").await.is_none()).await;
    assert_eq!(refused.hits(), 2);
    assert!(!home.bucket.join("backups/b/b.tar.gz").exists());
}
