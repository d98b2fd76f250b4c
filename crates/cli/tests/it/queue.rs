//! Backups that wait for their turn.

use http::Method;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::wait::WAIT_TIMEOUT;
use serde_json::json;

use crate::bed::{Bed, eventually, on_both_clusters, phase};

on_both_clusters! {
    backups_of_the_same_namespace_run_in_sequence_and_others_in_parallel,
    a_new_server_resumes_every_phase_of_the_queue,
    a_backup_runs_if_the_server_dies_as_it_leaves_the_queue,
}

async fn backups_of_the_same_namespace_run_in_sequence_and_others_in_parallel(bed: &Bed) {
    plimsoll_testkit::require!(plimsoll_testkit::cache::program("versitygw"));
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    let (shop, mill) = (bed.application("shop", 6).await, bed.application("mill", 6).await);
    let _server = home.server_through(&bed.kubeconfig, &["--concurrency", "2", "--store-idle-timeout", "2s"], &[]);
    let hanging = proxy.inject(Requests::with_method(Method::PUT).containing("backups/one/"), Fault::Hang);
    home.backup("one", json!({ "includedNamespaces": [shop] })).await;
    eventually("one is running", async || phase(&home.get("Backup", "one").await) == "InProgress").await;
    home.backup("two", json!({ "includedNamespaces": ["*"] })).await;
    eventually("two waits", async || phase(&home.get("Backup", "two").await) == "Queued").await;
    assert_eq!(home.get("Backup", "two").await["status"]["queuePosition"], 1);
    eventually("two names the backup ahead", async || {
        let said = home.find("Operation", "backup-two").await.unwrap_or_default()["status"].to_string();
        said.contains("queued behind backup one, which works on the same namespaces")
    })
    .await;
    home.delete("Backup", "two").await;
    home.backup("three", json!({ "includedNamespaces": [shop] })).await;
    eventually("three waits", async || phase(&home.get("Backup", "three").await) == "Queued").await;
    home.backup("four", json!({ "includedNamespaces": [mill] })).await;
    assert_eq!(phase(&home.ended("Backup", "four").await), "Completed", "it passes three\n{}", home.log());
    assert_eq!(phase(&home.get("Backup", "three").await), "Queued");
    drop(hanging);
    for name in ["one", "three"] {
        let backup = home.ended("Backup", name).await;
        assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}", home.log());
        assert!(backup["status"]["queuePosition"].is_null());
        assert!(backup["status"]["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty()));
    }
    let events = home.events("Backup", "one").await;
    assert!(["Started", "Succeeded"].iter().all(|reason| events.contains(&(*reason).to_owned())), "{events:?}");
}

async fn a_new_server_resumes_every_phase_of_the_queue(bed: &Bed) {
    let home = bed.home("home").await;
    let shop = bed.application("shop", 3).await;
    for (name, phase) in [("fresh", ""), ("new", "New"), ("queued", "Queued"), ("ready", "ReadyToStart")] {
        home.backup(name, json!({ "includedNamespaces": [shop] })).await;
        if !phase.is_empty() {
            home.patch("Backup", name, json!({ "status": { "phase": phase } })).await;
        }
    }
    home.patch("Backup", "queued", json!({ "status": { "queuePosition": 7 } })).await;
    let _server = home.server();
    for name in ["fresh", "new", "queued", "ready"] {
        let backup = home.ended("Backup", name).await;
        assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}", home.log());
    }
}

async fn a_backup_runs_if_the_server_dies_as_it_leaves_the_queue(bed: &Bed) {
    let shop = bed.application("shop", 3).await;
    for point in ["queue.leave.before", "queue.leave.after"] {
        let home = bed.home(&point.replace('.', "-")).await;
        for name in ["one", "two"] {
            home.backup(name, json!({ "includedNamespaces": [shop] })).await;
        }
        home.patch("Backup", "two", json!({ "status": { "phase": "Queued", "queuePosition": 1 } })).await;
        let mut server = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", point)]);
        tokio::time::timeout(WAIT_TIMEOUT, server.wait()).await.unwrap().unwrap();
        let _next = home.server_with_short_lease(&[]);
        for name in ["one", "two"] {
            let backup = home.ended("Backup", name).await;
            assert_eq!(phase(&backup), "Completed", "killed at {point}: {backup:#}\n{}", home.log());
        }
    }
}
