//! Lists: selectors and pages.

use super::{Scope, config_map, create, labelled, make_namespace, names, refusal, unique};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

pub async fn labels_select(scope: &Scope) {
    let api = scope.config_maps();
    for (name, value) in [("one", "a"), ("two", "b"), ("three", "c")] {
        create(&api, &labelled(name, "example.com/tier", value)).await;
    }
    create(&api, &config_map("without", "value")).await;
    let cases: [(&str, &[&str]); 9] = [
        ("example.com/tier=a", &["one"]),
        ("example.com/tier==a", &["one"]),
        ("example.com/tier!=a,example.com/tier", &["three", "two"]),
        ("example.com/tier in (a, b)", &["one", "two"]),
        ("example.com/tier notin (a,b),example.com/tier", &["three"]),
        ("example.com/tier", &["one", "three", "two"]),
        ("example.com/tier=a,example.com/tier=b", &[]),
        ("!example.com/tier,kubernetes.io/never!=x", &["without"]),
        ("example.com/tier=", &[]),
    ];
    for (selector, expected) in cases {
        let list = api.list(&ListParams::default().labels(selector)).await.unwrap();
        let mut found = names(&list.items);
        found.retain(|name| name != "kube-root-ca.crt");
        assert_eq!(found, expected, "{selector}");
    }
    for selector in ["a b", "=x", "a in b", "-bad-=x", "a=-bad-"] {
        let refused = refusal(api.list(&ListParams::default().labels(selector)).await);
        assert_eq!(refused, (400, "BadRequest".to_owned()), "{selector}");
    }
}

pub async fn fields_select(scope: &Scope) {
    let api = scope.config_maps();
    create(&api, &config_map("one", "value")).await;
    create(&api, &config_map("two", "value")).await;
    let list = api.list(&ListParams::default().fields("metadata.name=two")).await.unwrap();
    assert_eq!(names(&list.items), ["two"]);
    let refused = refusal(api.list(&ListParams::default().fields("data.key=value")).await);
    assert_eq!(refused, (400, "BadRequest".to_owned()));
    scope.make_service_account().await;
    let pods: Api<Pod> = Api::namespaced(scope.client.clone(), &scope.namespace);
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "placed"},
        "spec": {"nodeName": "nowhere", "containers": [{"name": "main", "image": "main"}]},
    }));
    pods.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
    for (selector, expected) in
        [("spec.nodeName=nowhere", 1), ("spec.nodeName!=nowhere", 0), ("status.phase=Running", 0)]
    {
        let list = pods.list(&ListParams::default().fields(selector)).await.unwrap();
        assert_eq!(list.items.len(), expected, "{selector}");
    }
}

pub async fn pages_together_are_one_consistent_list(scope: &Scope) {
    let api = scope.config_maps();
    for number in 0..7 {
        create(&api, &labelled(&format!("page-{number}"), "paged", "yes")).await;
    }
    let whole = api.list(&ListParams::default()).await.unwrap();
    let total = i64::try_from(whole.items.len()).unwrap();
    let first = api.list(&ListParams::default().limit(3)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(total - 3));
    let mut token = first.metadata.continue_.clone().unwrap();
    // What happens between the pages does not show in them.
    api.delete("page-5", &DeleteParams::default()).await.unwrap();
    create(&api, &config_map("page-51", "new")).await;
    let mut all = first.items;
    loop {
        let page = api.list(&ListParams::default().limit(3).continue_token(&token)).await.unwrap();
        assert_eq!(page.metadata.resource_version, first.metadata.resource_version);
        all.extend(page.items);
        match page.metadata.continue_ {
            Some(next) if !next.is_empty() => token = next,
            _ => break,
        }
    }
    assert_eq!(all, whole.items);
    // With a selector the remaining items are not counted.
    let selected = api.list(&ListParams::default().labels("paged=yes").limit(2)).await.unwrap();
    assert_eq!((selected.items.len(), selected.metadata.remaining_item_count), (2, None));
    let refused = refusal(api.list(&ListParams::default().limit(3).continue_token("nonsense")).await);
    assert_eq!(refused, (400, "BadRequest".to_owned()));
}

pub async fn a_list_over_all_namespaces_sees_each_of_them(scope: &Scope) {
    let other = unique("other");
    make_namespace(&scope.client, &other).await;
    let mark = unique("everywhere");
    create(&scope.config_maps(), &labelled("here", "mark", &mark)).await;
    let elsewhere: Api<ConfigMap> = Api::namespaced(scope.client.clone(), &other);
    create(&elsewhere, &labelled("there", "mark", &mark)).await;
    let everywhere: Api<ConfigMap> = Api::all(scope.client.clone());
    let list = everywhere.list(&ListParams::default().labels(&format!("mark={mark}"))).await.unwrap();
    let mut found: Vec<_> = list.items.iter().map(|item| (item.namespace().unwrap(), item.name_any())).collect();
    found.sort();
    let mut expected = vec![(scope.namespace.clone(), "here".to_owned()), (other.clone(), "there".to_owned())];
    expected.sort();
    assert_eq!(found, expected);
    Scope { client: scope.client.clone(), namespace: other }.end().await;
}
