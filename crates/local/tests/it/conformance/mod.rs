//! The behaviour of every Kubernetes API, tested through `kube::Client` only.
//!
//! Nothing here knows which API it talks to: another crate can include this directory with `#[path]`, write
//! `for_each_case!(its_macro)` and hand every case a [`Scope`] over a client of its own. Only behaviour that a real
//! kube-apiserver 1.36 (with its controller manager, for `deletion`) shows too may be asserted.

pub mod definitions;
pub mod deletion;
pub mod lists;
pub mod objects;
pub mod patches;
pub mod refusals;
pub mod shapes;
pub mod watches;

use http::{Method, Request};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
    client::Body,
};
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// Calls a macro with `module::case` for every case.
macro_rules! for_each_case {
    ($call:ident) => {
        $call! {
            objects: created_objects_get_identity_and_can_be_read,
            objects: a_stale_update_is_a_conflict,
            objects: a_new_object_has_no_resource_version_or_zero,
            objects: an_update_without_change_keeps_the_resource_version,
            objects: generated_names_extend_the_prefix,
            objects: a_dry_run_changes_nothing,
            objects: the_generation_counts_changes_of_the_spec_only,
            objects: the_status_is_only_written_through_its_subresource,
            objects: string_data_of_a_secret_becomes_data,
            objects: an_update_with_another_uid_is_a_conflict,
            objects: a_scale_changes_the_replicas,
            objects: old_and_new_events_are_the_same_objects,
            patches: a_merge_patch_sets_and_removes,
            patches: a_json_patch_applies_all_or_nothing,
            patches: a_strategic_patch_merges_lists_by_key,
            patches: a_patch_with_a_stale_resource_version_is_a_conflict,
            lists: labels_select,
            lists: fields_select,
            lists: pages_together_are_one_consistent_list,
            lists: a_list_over_all_namespaces_sees_each_of_them,
            watches: a_watch_after_a_list_misses_nothing,
            watches: a_watch_with_a_selector_sees_objects_come_and_go,
            watches: a_watch_from_nothing_starts_with_what_is_there,
            watches: initial_events_end_with_a_bookmark,
            watches: a_watch_ends_at_its_timeout,
            deletion: a_finalizer_delays_the_removal,
            deletion: preconditions_guard_a_deletion,
            deletion: background_deletion_deletes_dependents,
            deletion: foreground_deletion_waits_for_dependents,
            deletion: orphans_survive_their_owner,
            deletion: a_dependent_with_another_owner_stays,
            deletion: a_dependent_of_an_absent_owner_is_collected,
            deletion: a_collection_is_deleted_by_selector,
            deletion: deleting_a_namespace_deletes_its_content,
            deletion: nothing_is_created_in_a_terminating_namespace,
            definitions: a_definition_is_established_and_serves_objects,
            definitions: unknown_fields_are_pruned_and_reported,
            definitions: defaults_are_filled_in,
            definitions: a_schema_violation_names_every_field,
            definitions: versions_differ_in_name_only,
            definitions: deleting_a_definition_deletes_its_objects,
            definitions: an_invalid_definition_is_rejected,
            refusals: bad_requests_get_code_and_reason_of_kubernetes,
            refusals: invalid_objects_are_unprocessable,
            refusals: a_body_above_three_mebibytes_is_too_large,
            refusals: creating_twice_is_rejected,
            shapes: discovery_lists_groups_and_resources,
            shapes: a_table_has_columns_and_rows,
            shapes: metadata_can_be_requested_alone,
        }
    };
}
pub(crate) use for_each_case;

/// A namespace of its own on some cluster.
pub struct Scope {
    pub client: Client,
    pub namespace: String,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A name that no other case uses.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Scope {
    pub async fn new(client: Client, prefix: &str) -> Self {
        let namespace = unique(prefix);
        make_namespace(&client, &namespace).await;
        Self { client, namespace }
    }

    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Pods need it. A cluster with all its controllers makes it, in its own time.
    pub async fn make_service_account(&self) {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
        match accounts.create(&PostParams::default(), &account).await {
            Err(kube::Error::Api(status)) => assert_eq!(status.reason, "AlreadyExists"),
            other => drop(other.unwrap()),
        }
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// Leaves the cluster as it was found.
    pub async fn end(self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        // A case may have deleted it already.
        let _ = namespaces.delete(&self.namespace, &DeleteParams::default()).await;
    }

    /// One request, whatever it is; the answer's code and body.
    pub async fn raw(&self, method: Method, path: &str, content_type: &str, body: impl Into<Vec<u8>>) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        self.send(request.body(Body::from(body.into())).unwrap()).await
    }

    pub async fn send(&self, request: Request<Body>) -> (u16, Value) {
        let response = self.client.send(request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }
}

pub async fn make_namespace(client: &Client, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
}

pub fn config_map(name: &str, data: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"key": data}})).unwrap()
}

pub fn labelled(name: &str, key: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {key: value}}})).unwrap()
}

pub async fn create(api: &Api<ConfigMap>, object: &ConfigMap) -> ConfigMap {
    api.create(&PostParams::default(), object).await.unwrap()
}

/// The code and reason of an error.
pub fn refusal<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason.clone()),
        other => panic!("expected an error of the API, got {other:?}"),
    }
}

/// Waits until a question is answered with something. Clusters do some things in their own time.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut condition: impl FnMut() -> F) -> T {
    let mut pause = tokio::time::interval(Duration::from_millis(20));
    let polling = async {
        loop {
            pause.tick().await;
            if let Some(answer) = condition().await {
                return answer;
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(3), polling)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within 3 minutes"))
}

pub async fn wait_until_deleted(api: &Api<ConfigMap>, name: &str) {
    eventually(&format!("{name} is deleted"), || async { api.get_opt(name).await.unwrap().is_none().then_some(()) })
        .await;
}

pub fn names(list: &[ConfigMap]) -> Vec<String> {
    list.iter().map(ResourceExt::name_any).collect()
}
