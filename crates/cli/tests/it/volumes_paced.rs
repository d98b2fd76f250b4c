//! The custom resource of a transfer is up to date: its bytes move every two seconds.

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use kube::api::{WatchEvent, WatchParams};
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, phase, terminate_server};
use crate::pod_volumes::{Application, agent, agent_log, server};
use crate::volumes_killed::{kill, movers_of};

/// Bytes of noise in the volume, and how many of them get through in a second: twelve seconds or more in either direction, and
/// fast enough for packs of 16 MiB, of which two are on their way together, to arrive more often than every two seconds.
const BYTES: u64 = 288 << 20;
const LINE: u64 = 24 << 20;

/// The agents write every one and a half seconds; a machine that is busy with other tests may be late, but not by this much.
const MAX_GAP: Duration = Duration::from_secs(6);

/// A number of bytes that was seen for the first time.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: Instant,
    done: u64,
    total: u64,
}

/// Watches the transfer of the volume `data` to its end: every change of its bytes.
async fn steps(home: &Home<'_>, kind: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    watch(home, kind, |one| step(one, &mut steps)).await;
    steps
}

/// Looks at everything that is written about the volume `data` until it has been moved.
async fn watch(home: &Home<'_>, kind: &str, mut look: impl FnMut(&Value)) {
    let api = home.api(kind);
    let limit = tokio::time::timeout(Duration::from_mins(3), async {
        let mut events = api.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        while let Some(event) = events.try_next().await.unwrap() {
            let (WatchEvent::Added(one) | WatchEvent::Modified(one)) = event else { continue };
            let one = json!(one);
            if one["spec"]["volume"] == "data" {
                look(&one);
                if matches!(phase(&one), "Completed" | "Failed" | "Canceled") {
                    assert_eq!(phase(&one), "Completed", "{one:#}");
                    return;
                }
            }
        }
    });
    limit.await.unwrap_or_else(|_| panic!("{kind} has not ended\n{}", agent_log(home)));
}

fn step(transfer: &Value, steps: &mut Vec<Step>) {
    let progress = &transfer["status"]["progress"];
    let (Some(done), Some(total)) = (progress["bytesDone"].as_u64(), progress["totalBytes"].as_u64()) else { return };
    if steps.last().is_none_or(|last| last.done != done) {
        steps.push(Step { at: Instant::now(), done, total });
    }
}

/// Never back, never a wrong 100 %, and never silent for long.
fn assert_paced(what: &str, steps: &[Step]) {
    let gaps: Vec<Duration> = steps.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    let moved: Vec<_> = steps.iter().map(|step| (step.done >> 20, step.total >> 20)).collect();
    let shown = format!("{what}: {moved:?} MiB, {gaps:.1?} apart");
    assert!(steps.windows(2).all(|pair| pair[0].done < pair[1].done), "{shown}");
    let Some((last, before)) = steps.split_last() else { panic!("{what}: nothing was ever shown") };
    assert!(last.done == last.total && before.iter().all(|step| step.done < step.total), "{shown}");
    // Before the last one a restore is flushed to its disk, and no bytes move.
    let moving = gaps.split_last().map_or(&[][..], |(_, before)| before);
    assert!(moving.iter().all(|gap| *gap < MAX_GAP), "{shown}");
    // So long the bytes between the first and the last step take on the line, at the least: a step every two seconds or more
    // often, one of three late.
    let line = Duration::from_secs((last.done - steps[0].done) / LINE);
    let enough = Duration::from_secs(3).saturating_mul(u32::try_from(gaps.len()).unwrap());
    assert!(line >= Duration::from_secs(6) && enough >= line, "too few for {line:?}: {shown}");
}

/// Backs up and restores a volume over a slow line. `check` watches each of the two transfers to its end.
async fn there_and_back(check: impl AsyncFn(&Home<'_>, &str, &tokio::process::Child)) {
    require!(cache::program("versitygw"));
    let bed = Bed::local_with_pods().await;
    let application = Application::start(&bed, "shop", usize::try_from(BYTES).unwrap()).await;
    application.annotate("backup.velero.io/backup-volumes", "data").await;
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));

    proxy.slow_down(Some(LINE));
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    check(&home, "PodVolumeBackup", &agent).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages("b", "errors"), agent_log(&home));
    application.lose().await;

    home.restore("r", json!({ "backupName": "b" })).await;
    check(&home, "PodVolumeRestore", &agent).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", agent_log(&home));
    terminate_server(agent).await;
}

/// With the built-in mover, which counts bytes when the store has them: agents write the resources of all movers alike, but
/// restic and kopia count what they have read, in leaps as large as what they have on its way.
#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_a_transfer_advance_at_least_every_two_seconds() {
    there_and_back(async |home, kind, _| assert_paced(kind, &steps(home, kind).await)).await;
}

/// The progress in one write of a transfer.
#[derive(Clone, Debug, PartialEq)]
struct TransferSample {
    attempt: u64,
    done: u64,
    total: u64,
    percent: f64,
    files: u64,
}

fn sample(transfer: &Value) -> Option<TransferSample> {
    let (progress, summary) = (&transfer["status"]["progress"], &transfer["status"]["plimsoll"]);
    assert!(summary["stalled"].is_null(), "{transfer:#}");
    let attempt = transfer["metadata"]["annotations"]["plimsoll.dev/attempts"].as_str()?.parse().ok()?;
    let percent = summary["percent"].as_str()?.trim_start_matches(['~', '≥']).parse().ok()?;
    let (done, total) = (progress["bytesDone"].as_u64()?, progress["totalBytes"].as_u64()?);
    Some(TransferSample { attempt, done, total, percent, files: summary["filesDone"].as_u64().unwrap_or(0) })
}

/// Watches a transfer whose first mover is killed once it has moved bytes: progress never decreases, and the bytes of the
/// second mover are reported while it moves them.
async fn watch_with_a_killed_mover(home: &Home<'_>, kind: &str, agent: &tokio::process::Child) {
    let mut all = Vec::<TransferSample>::new();
    watch(home, kind, |transfer| {
        let Some(sample) = sample(transfer).filter(|sample| all.last() != Some(sample)) else { return };
        if all.is_empty() {
            movers_of(agent).into_iter().for_each(kill);
        }
        all.push(sample);
    })
    .await;
    let (last, before) = all.split_last().unwrap();
    let falls = |pair: &[TransferSample]| {
        pair[1].done < pair[0].done || pair[1].percent < pair[0].percent || pair[1].files < pair[0].files
    };
    assert!(!all.windows(2).any(falls), "{kind}: {all:#?}");
    let whole = |sample: &TransferSample| sample.done == sample.total || sample.percent >= 100.0;
    assert!(whole(last) && !before.iter().any(whole), "{kind}: {all:#?}");
    assert_eq!((before[0].attempt, last.attempt), (1, 2), "{kind}: {all:#?}");
    let live = before.iter().filter(|sample| sample.attempt == 2 && sample.done > before[0].done).count();
    assert!(live >= 3, "{kind}: the second mover's bytes are reported only {live} times: {all:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_a_volume_advance_after_its_mover_is_killed() {
    there_and_back(watch_with_a_killed_mover).await;
}
