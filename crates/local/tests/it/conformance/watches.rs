//! Watches.

use super::{Scope, config_map, create, labelled};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::json;
use std::time::Duration;

type Events = BoxStream<'static, Result<WatchEvent<ConfigMap>, kube::Error>>;

async fn watch(api: &Api<ConfigMap>, parameters: &WatchParams, since: &str) -> Events {
    api.watch(parameters, since).await.unwrap().boxed()
}

/// The next event that is about an object, in short.
async fn next(events: &mut Events) -> (&'static str, String) {
    let reading = async {
        loop {
            match events.try_next().await.unwrap().expect("the watch continues") {
                WatchEvent::Added(object) => return ("ADDED", object.name_any()),
                WatchEvent::Modified(object) => return ("MODIFIED", object.name_any()),
                WatchEvent::Deleted(object) => return ("DELETED", object.name_any()),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => panic!("the watch failed: {status:?}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(2), reading).await.expect("an event within two minutes")
}

async fn expect(events: &mut Events, expected: &[(&'static str, &str)]) {
    for (change, name) in expected {
        assert_eq!(next(events).await, (*change, (*name).to_owned()));
    }
}

pub async fn a_watch_after_a_list_misses_nothing(scope: &Scope) {
    let api = scope.config_maps();
    create(&api, &labelled("before", "watched", "yes")).await;
    let list = api.list(&ListParams::default()).await.unwrap();
    // These happen between the list and the watch.
    create(&api, &labelled("between", "watched", "yes")).await;
    api.delete("before", &DeleteParams::default()).await.unwrap();
    let since = list.metadata.resource_version.unwrap();
    let mut events = watch(&api, &WatchParams::default().labels("watched=yes"), &since).await;
    expect(&mut events, &[("ADDED", "between"), ("DELETED", "before")]).await;
    let patch = Patch::Merge(json!({"data": {"key": "new"}}));
    api.patch("between", &PatchParams::default(), &patch).await.unwrap();
    expect(&mut events, &[("MODIFIED", "between")]).await;
}

pub async fn a_watch_with_a_selector_sees_objects_come_and_go(scope: &Scope) {
    let api = scope.config_maps();
    create(&api, &labelled("moving", "side", "left")).await;
    let since = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events = watch(&api, &WatchParams::default().labels("side=right"), &since).await;
    let to = |side: &str| Patch::Merge(json!({"metadata": {"labels": {"side": side}}}));
    api.patch("moving", &PatchParams::default(), &to("right")).await.unwrap();
    api.patch("moving", &PatchParams::default(), &to("left")).await.unwrap();
    expect(&mut events, &[("ADDED", "moving"), ("DELETED", "moving")]).await;
}

pub async fn a_watch_from_nothing_starts_with_what_is_there(scope: &Scope) {
    let api = scope.config_maps();
    create(&api, &labelled("old", "watched", "yes")).await;
    let mut events = watch(&api, &WatchParams::default().labels("watched=yes"), "0").await;
    create(&api, &labelled("new", "watched", "yes")).await;
    expect(&mut events, &[("ADDED", "old"), ("ADDED", "new")]).await;
}

pub async fn initial_events_end_with_a_bookmark(scope: &Scope) {
    let api = scope.config_maps();
    create(&api, &config_map("there", "value")).await;
    let parameters = WatchParams::default().initial_events().fields("metadata.name=there");
    let mut events = watch(&api, &parameters, "0").await;
    expect(&mut events, &[("ADDED", "there")]).await;
    let bookmark = tokio::time::timeout(Duration::from_mins(2), events.try_next()).await.unwrap().unwrap();
    let Some(WatchEvent::Bookmark(bookmark)) = bookmark else { panic!("expected a bookmark, not {bookmark:?}") };
    assert_eq!(bookmark.metadata.annotations["k8s.io/initial-events-end"], "true");
    assert!(!bookmark.metadata.resource_version.is_empty());
}

pub async fn a_watch_ends_at_its_timeout(scope: &Scope) {
    let api = scope.config_maps();
    let since = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let events = watch(&api, &WatchParams::default().timeout(1), &since).await;
    let counted = tokio::time::timeout(Duration::from_mins(2), events.count()).await;
    assert!(counted.is_ok(), "the watch was to end after a second");
}
