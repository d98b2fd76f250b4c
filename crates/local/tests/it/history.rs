//! Retention of the history, and expired watches and lists.

use crate::{
    conformance::{Scope, config_map, create, refusal},
    embedded::Embedded,
};
use futures::{StreamExt, TryStreamExt};
use kube::api::{ListParams, WatchEvent, WatchParams};
use plimsoll_local::{Options, Retention};
use std::time::Duration;

async fn open_with_short_history() -> Embedded {
    Embedded::open_with(Options { retention: Retention { events: 5, bytes: 1 << 20 }, ..Options::default() }).await
}

#[tokio::test]
async fn a_watch_that_falls_behind_expires() {
    let embedded = open_with_short_history().await;
    let scope = Scope::new(embedded.api.client("default"), "slow").await;
    let api = scope.config_maps();
    let since = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events = api.watch(&WatchParams::default(), &since).await.unwrap().boxed();
    create(&api, &config_map("seen", "x")).await;
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    for number in 0..10 {
        create(&api, &config_map(&format!("missed-{number}"), "x")).await;
    }
    let Some(WatchEvent::Error(status)) = events.try_next().await.unwrap() else { panic!("expected the end") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    assert!(events.try_next().await.unwrap().is_none(), "nothing follows");
}

#[tokio::test]
async fn a_watch_from_before_the_history_has_expired() {
    let embedded = open_with_short_history().await.reopen().await;
    let scope = Scope::new(embedded.api.client("default"), "late").await;
    let mut events = scope.config_maps().watch(&WatchParams::default(), "1").await.unwrap().boxed();
    let Some(WatchEvent::Error(status)) = events.try_next().await.unwrap() else { panic!("expected the end") };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
}

#[tokio::test]
async fn a_paged_list_that_takes_too_long_expires() {
    let embedded = open_with_short_history().await;
    let scope = Scope::new(embedded.api.client("default"), "slow").await;
    let api = scope.config_maps();
    for number in 0..10 {
        create(&api, &config_map(&format!("page-{number}"), "x")).await;
    }
    let first = api.list(&ListParams::default().limit(4)).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    for number in 0..10 {
        create(&api, &config_map(&format!("later-{number}"), "x")).await;
    }
    let expired = api.list(&ListParams::default().limit(4).continue_token(&token)).await;
    let Err(kube::Error::Api(status)) = &expired else { panic!("expected the end, not {expired:?}") };
    let resume = status.metadata.clone().and_then(|metadata| metadata.continue_).unwrap();
    assert_eq!(refusal(expired), (410, "Expired".to_owned()));
    let rest = api.list(&ListParams::default().continue_token(&resume)).await.unwrap();
    assert_eq!(rest.items.len(), 6, "continues after the first page with the current objects");
}

#[tokio::test]
async fn a_quiet_watch_gets_bookmarks() {
    let options = Options { bookmark_interval: Duration::from_millis(50), ..Options::default() };
    let embedded = Embedded::open_with(options).await;
    let scope = Scope::new(embedded.api.client("default"), "quiet").await;
    let api = scope.config_maps();
    let since = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let parameters = WatchParams::default().fields("metadata.name=never");
    let mut events = api.watch(&parameters, &since).await.unwrap().boxed();
    create(&api, &config_map("unrelated", "x")).await;
    let Some(WatchEvent::Bookmark(bookmark)) = events.try_next().await.unwrap() else { panic!("expected a bookmark") };
    assert!(bookmark.metadata.resource_version.parse::<u64>().unwrap() > since.parse().unwrap());
}
