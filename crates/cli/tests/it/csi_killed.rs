//! Servers that die around CSI snapshots and the data that is moved out of them.

use std::os::unix::process::ExitStatusExt;

use http::Method;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::bed::{Bed, Home, eventually, is_ended, phase, terminate_server};
use crate::csi_moved::{list, wait_until_moving};
use crate::csi_volumes::{CsiClaim, contents, copies, snapshots};
use crate::killed::{has_no_open_operations, terminate_if_running};
use crate::pod_volumes::{agent, agent_log, volume_server};

fn server(home: &Home<'_>, environment: &[(&str, &str)]) -> Child {
    volume_server(home, "built-in", &["--lease-duration", "2s"], environment)
}

/// Kills a server at a point, starts others, and waits until the subject has ended and all is tidy.
async fn kill_server_at(home: &Home<'_>, point: &str, kind: &str, name: &str) -> Value {
    let deadly: &[(&str, &str)] = &[("PLIMSOLL_KILL_AT", point)];
    let mut current = server(home, deadly);
    let (mut killed, mut last) = (false, Value::Null);
    eventually(&format!("{kind} {name} has ended, killed at {point}"), async || {
        if let Ok(Some(status)) = current.try_wait() {
            // A server that lost its office on a busy machine is followed by one that dies as planned.
            killed |= status.signal() == Some(9);
            current = server(home, if killed { &[] } else { deadly });
        }
        last = home.get(kind, name).await;
        is_ended(&last) && killed && has_no_open_operations(home).await
    })
    .await;
    terminate_if_running(current).await;
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_around_a_csi_snapshot_takes_no_second_one() {
    let bed = Bed::local_with_pods().await;
    let claim = CsiClaim::make(&bed, "shop", 1000).await;
    let before = claim.files().await;
    let mut homes = Vec::new();
    let points =
        ["csi.create.before", "csi.create.after", "operation.begun.after", "csi.release.before", "csi.release.after"];
    for (number, point) in points.into_iter().enumerate() {
        let home = bed.home(&point.replace('.', "-")).await;
        home.backup("b", json!({ "includedNamespaces": [claim.namespace] })).await;
        let backup = kill_server_at(&home, point, "Backup", "b").await;
        assert_eq!(phase(&backup), "Completed", "{point}: {backup:#}\n{}", home.log());
        assert_eq!(backup["status"]["csiVolumeSnapshotsCompleted"], 1, "{point}: {backup:#}");
        assert_eq!(copies(&bed).len(), number + 1, "{point}: one for each backup");
        eventually("the objects are gone", async || {
            snapshots(&bed).await.is_empty() && contents(&bed).await.is_empty()
        })
        .await;
        homes.push(home);
    }
    claim.lose().await;
    let home = homes.pop().unwrap();
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = kill_server_at(&home, "operation.begun.after", "Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", home.log());
    assert_eq!(claim.files().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_around_data_movement_moves_the_data_once() {
    let bed = Bed::local_with_pods().await;
    let claim = CsiClaim::make(&bed, "shop", 10_000).await;
    let before = claim.files().await;
    let points = [
        "csi.create.after",
        "upload.create.before",
        "upload.create.after",
        "exposing.content.before",
        "exposing.content.after",
        "exposing.source.before",
        "exposing.prepared.before",
    ];
    let home = bed.home("home").await;
    let agent = agent(&home, &[], &[]);
    for (number, point) in points.into_iter().enumerate() {
        let name = format!("b{number}");
        home.backup(&name, json!({ "includedNamespaces": [claim.namespace], "snapshotMoveData": true })).await;
        let backup = kill_server_at(&home, point, "Backup", &name).await;
        let said = || format!("{point}: {backup:#}\n{}\n{}", home.log(), agent_log(&home));
        assert_eq!(phase(&backup), "Completed", "{}", said());
        assert_eq!(list(&home, "DataUpload").await.len(), number + 1, "{}", said());
    }
    let mut tidying = server(&home, &[]);
    eventually("nothing of it stays", async || {
        copies(&bed).is_empty() && snapshots(&bed).await.is_empty() && contents(&bed).await.is_empty()
    })
    .await;
    tidying.kill().await.unwrap();
    claim.lose().await;
    for (number, point) in
        ["download.create.after", "exposing.handover.before", "exposing.handover.after"].into_iter().enumerate()
    {
        let name = format!("r{number}");
        home.restore(&name, json!({ "backupName": "b0" })).await;
        let restore = kill_server_at(&home, point, "Restore", &name).await;
        assert_eq!(phase(&restore), "Completed", "{point}: {restore:#}\n{}\n{}", home.log(), agent_log(&home));
        assert_eq!(claim.files().await, before, "{point}");
        claim.lose().await;
    }
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_server_and_the_agent_during_an_upload_loses_no_data() {
    let bed = Bed::local_with_pods().await;
    require!(cache::program("versitygw"));
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    let claim = CsiClaim::make(&bed, "shop", 160 << 20).await;
    let before = claim.files().await;
    // Every pack takes its time, so that the middle is certainly met.
    let slow = Fault::Latency(std::time::Duration::from_secs(1));
    let slow = proxy.inject(Requests::with_method(Method::PUT).containing("/data/"), slow);
    let (mut first_agent, mut first) = (agent(&home, &[], &[]), server(&home, &[]));
    home.backup("b", json!({ "includedNamespaces": [claim.namespace], "snapshotMoveData": true })).await;
    wait_until_moving(&home, "DataUpload").await;
    first.kill().await.unwrap();
    first_agent.kill().await.unwrap();
    drop(slow);
    let (agent, next) = (agent(&home, &[], &[]), server(&home, &[]));
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}\n{}", home.log(), agent_log(&home));
    let uploads = list(&home, "DataUpload").await;
    assert_eq!((uploads.len(), phase(&uploads[0])), (1, "Completed"), "{uploads:#?}");
    claim.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}\n{}", home.log(), agent_log(&home));
    assert_eq!(claim.files().await, before);
    terminate_server(agent).await;
    terminate_if_running(next).await;
}
