//! Many objects, many watchers, little memory.

use crate::{conformance::config_map, embedded::Embedded};
use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
};
use std::collections::BTreeSet;

const OBJECTS: usize = 10_000;
const WATCHERS: usize = 100;

/// Watches as a client does: lists again when it has fallen behind. Answers the names it has seen.
async fn follow(api: Api<ConfigMap>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    while seen.len() < OBJECTS {
        let list = api.list(&ListParams::default()).await.unwrap();
        seen.extend(list.items.iter().map(ResourceExt::name_any));
        let since = list.metadata.resource_version.unwrap();
        let mut events = api.watch(&WatchParams::default(), &since).await.unwrap().boxed();
        while seen.len() < OBJECTS {
            match events.try_next().await.unwrap() {
                Some(WatchEvent::Added(object)) => drop(seen.insert(object.name_any())),
                Some(WatchEvent::Bookmark(_)) => {}
                Some(WatchEvent::Error(status)) if status.code == 410 => break,
                other => panic!("unexpected: {other:?}"),
            }
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_watchers_see_all_of_ten_thousand_objects() {
    let embedded = Embedded::open().await;
    let maps: Api<ConfigMap> = Api::namespaced(embedded.api.client("default"), "default");
    let watchers: Vec<_> = (0..WATCHERS).map(|_| tokio::spawn(follow(maps.clone()))).collect();
    let created = stream::iter(0..OBJECTS)
        .map(|number| {
            let maps = maps.clone();
            async move {
                let object = config_map(&format!("object-{number:05}"), "x");
                maps.create(&PostParams::default(), &object).await.unwrap().name_any()
            }
        })
        .buffer_unordered(64)
        .collect::<BTreeSet<String>>()
        .await;
    for seen in join_all(watchers).await {
        assert_eq!(seen.unwrap(), created);
    }
}
