use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use kube::runtime::watcher;
use plimsoll_api::velero::v1::PodVolumeBackup;
use plimsoll_progress::{Clock, Operation};
use serde_json::json;

use super::entries::{active_transfers, mark_lost};
use super::obstacles::{ObstacleAction, overdue};
use super::watch::handle_event;
use super::{Follower, TransferLost, TransferResult};

const CANCEL_TIMEOUT: Duration = Duration::from_mins(1);

fn transfer(name: &str) -> PodVolumeBackup {
    let object = json!({ "metadata": { "name": name }, "spec": { "volume": "data" } });
    serde_json::from_value(object).unwrap()
}

/// A follower without a watch.
fn follower() -> Follower<PodVolumeBackup> {
    Follower { entries: Arc::default(), driver: tokio::spawn(async {}), limit: CANCEL_TIMEOUT }
}

fn follow(follower: &Follower<PodVolumeBackup>, name: &str) -> TransferResult<PodVolumeBackup> {
    follower.follow(name, Operation::new(name, Clock::system()).root())
}

fn handle_all(follower: &Follower<PodVolumeBackup>, events: Vec<watcher::Event<PodVolumeBackup>>) {
    let mut listed = HashSet::new();
    for event in events {
        handle_event(event, &mut listed, &follower.entries);
    }
}

/// The transfers that have not ended and whose existence is unknown.
fn in_doubt(follower: &Follower<PodVolumeBackup>) -> Vec<String> {
    let unseen = active_transfers(&follower.entries).into_iter().filter(|(_, latest)| latest.is_none());
    unseen.map(|(name, _)| name).collect()
}

#[tokio::test]
async fn one_that_a_new_list_no_longer_has_is_in_doubt_and_the_others_are_not() {
    use watcher::Event::{Apply, Init, InitApply, InitDone};
    let follower = follower();
    let _ended = [follow(&follower, "stays"), follow(&follower, "goes")];
    handle_all(&follower, vec![Init, InitApply(transfer("stays")), InitDone, Apply(transfer("goes"))]);
    assert!(in_doubt(&follower).is_empty());
    handle_all(&follower, vec![Init, InitApply(transfer("stays")), InitDone]);
    assert_eq!(in_doubt(&follower), ["goes"]);
}

#[tokio::test]
async fn one_that_is_deleted_has_ended_and_one_that_was_before_it_was_followed_is_in_doubt() {
    use watcher::Event::{Apply, Delete};
    let follower = follower();
    let ended = follow(&follower, "followed");
    for name in ["followed", "early"] {
        handle_all(&follower, vec![Apply(transfer(name)), Delete(transfer(name))]);
    }
    assert_eq!(ended.now_or_never().unwrap().err(), Some(TransferLost::Deleted));
    let _ended = follow(&follower, "early");
    assert_eq!(in_doubt(&follower), ["early"]);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_one_that_a_predecessor_made_runs_from_when_it_was_made() {
    use watcher::Event::Apply;
    let aged = |name: &str, seconds: i64| {
        let mut made = transfer(name);
        let created = Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
        made.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
        made
    };
    let follower = follower();
    let is_overdue = |name: &str| overdue(&follower.entries, name).is_some();
    handle_all(&follower, vec![Apply(aged("before", 50))]);
    let _ended = [follow(&follower, "before"), follow(&follower, "after"), follow(&follower, "ahead")];
    handle_all(&follower, vec![Apply(aged("after", 50)), Apply(aged("ahead", -50))]);
    assert!(!["before", "after", "ahead"].into_iter().any(is_overdue));
    tokio::time::advance(Duration::from_secs(11)).await;
    // Later updates do not count again.
    handle_all(&follower, vec![Apply(aged("after", 50))]);
    assert_eq!(["before", "after", "ahead"].map(is_overdue), [true, true, false]);
    tokio::time::advance(CANCEL_TIMEOUT).await;
    assert!(is_overdue("ahead"));
}

#[tokio::test(start_paused = true)]
async fn one_that_was_never_seen_may_take_no_longer_than_others() {
    let follower = follower();
    let ended = follow(&follower, "unseen");
    assert!(overdue(&follower.entries, "unseen").is_none());
    tokio::time::advance(CANCEL_TIMEOUT).await;
    assert!(
        matches!(overdue(&follower.entries, "unseen"), Some(ObstacleAction::Fail(why)) if why.starts_with("TimedOut"))
    );
    mark_lost("unseen", TransferLost::Unread, &follower.entries);
    assert_eq!(ended.now_or_never().unwrap().err(), Some(TransferLost::Unread));
    assert!(overdue(&follower.entries, "unseen").is_none(), "it has ended");
}
