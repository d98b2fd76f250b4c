//! CSI snapshots and moved data, both ways between Velero and Plimsoll: each restores the backups of the other.

use std::time::Duration;

use plimsoll_testkit::peers::{PlimsollInPods, S3Server, VeleroInPods};
use plimsoll_testkit::{cache, require};
use serde_json::json;

use crate::bed::{Bed, Home, eventually, phase};
use crate::csi_real::application;
use crate::installed_volumes::{expect, program, restore_of, sums};

/// Two backups of the application: its snapshot, and the data of its snapshot.
const KINDS: [(&str, &[&str]); 2] = [("snapped", &[]), ("moved", &["--snapshot-move-data"])];

fn backup_of<'a>(name: &'a str, shop: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["backup", "create", name, "--include-namespaces", shop, "--wait"][..], more].concat()
}

async fn plimsoll_restores(home: &Home<'_>, ours: &PlimsollInPods, shop: &str, before: &str) {
    for (kind, _) in KINDS {
        let (name, target) = (format!("theirs-{kind}"), home.bed.ns(&format!("ours-of-{kind}")));
        eventually("Velero's backup is synced", async || home.find("Backup", &name).await.is_some()).await;
        expect(ours, ours.cli(restore_of(&format!("r-{kind}"), &name, &format!("{shop}:{target}"))));
        assert_eq!(sums(&home.bed.client, &target).await, before, "{kind}: {}", ours.logs());
    }
}

async fn velero_restores(theirs: &Home<'_>, velero: &VeleroInPods, shop: &str, before: &str) {
    theirs.patch("BackupStorageLocation", "default", json!({ "spec": { "backupSyncPeriod": "1s" } })).await;
    for (kind, _) in KINDS {
        let (name, target) = (format!("ours-{kind}"), theirs.bed.ns(&format!("theirs-of-{kind}")));
        let synced = || async { Ok::<_, kube::Error>(theirs.find("Backup", &name).await) };
        plimsoll_testkit::wait::until("our backup to be synced by Velero", Duration::from_mins(3), synced)
            .await
            .unwrap();
        let restore = format!("r-{kind}");
        velero.cli(restore_of(&restore, &name, &format!("{shop}:{target}"))).unwrap();
        let log = || velero.cli(["restore", "logs", &restore]).unwrap_or_default();
        assert_eq!(phase(&theirs.get("Restore", &restore).await), "Completed", "{kind}: {}", log());
        assert_eq!(sums(&theirs.bed.client, &target).await, before, "{kind}: {}", log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_and_moved_data_of_velero_and_plimsoll_are_restored_by_the_other() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let machine = require!(cluster.machine());
    require!(cluster.csi().await);
    require!(VeleroInPods::preflight());
    require!(cache::program("versitygw").and(cache::program("kopia")));
    let bed = Bed::real(cluster).await;
    let store = S3Server::start(&machine.addresses().host()).unwrap();
    let bucket = store.create_bucket("both").unwrap();
    let shop = bed.ns("shop");
    let before = application(&bed, &shop).await;
    let features = ["--features=EnableCSI"];
    let velero = VeleroInPods::install_with(cluster, store.endpoint(), "both", &features).await.unwrap();
    let theirs = Home { bed: &bed, namespace: velero.namespace().to_owned(), bucket: bucket.clone() };
    for (kind, more) in KINDS {
        let name = format!("theirs-{kind}");
        velero.cli(backup_of(&name, &shop, more)).unwrap();
        let backup = theirs.get("Backup", &name).await;
        assert_eq!(phase(&backup), "Completed", "{backup:#}");
    }
    let arguments =
        ["--server-argument=--backup-sync-period=2s", "--server-argument=--adopt-default-repository-password"];
    let ours = PlimsollInPods::install(cluster, program(), store.endpoint(), "both", &arguments).await.unwrap();
    let home = Home { bed: &bed, namespace: ours.namespace().to_owned(), bucket };
    plimsoll_restores(&home, &ours, &shop, &before).await;
    for (kind, more) in KINDS {
        expect(&ours, ours.cli(backup_of(&format!("ours-{kind}"), &shop, more)));
    }
    velero_restores(&theirs, &velero, &shop, &before).await;
    let logs = ours.logs();
    assert!(!logs.contains("forbidden"), "{logs}");
    bed.clear().await;
}
