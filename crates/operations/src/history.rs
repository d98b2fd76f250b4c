//! Expected durations from earlier runs of the same schedule: of the whole operation and of each stage.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{DynamicObject, ListParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use plimsoll_api::labels::SCHEDULE_NAME;
use plimsoll_api::plimsoll::v1alpha1::{Operation, OperationState, OperationStatus};
use tracing::debug;

use crate::subject::operation_name;

/// The number of successful runs that are averaged.
const MAX_RUNS: usize = 3;

/// How long the stages took (and, at the empty path, the whole) in the last good runs of the schedule that this subject belongs
/// to. Empty without a schedule or without earlier runs: it is only a first estimate.
pub async fn expected_durations<K>(
    client: &Client,
    namespace: &str,
    subject: &K,
    verb: &str,
) -> BTreeMap<String, Duration>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let Some(schedule) = subject.labels().get(SCHEDULE_NAME) else { return BTreeMap::new() };
    match last_runs::<K>(client, namespace, schedule, subject, verb).await {
        Ok(runs) => mean(&runs),
        Err(error) => {
            debug!("earlier runs of schedule {schedule}: {error}");
            BTreeMap::new()
        }
    }
}

async fn last_runs<K>(
    client: &Client,
    namespace: &str,
    schedule: &str,
    subject: &K,
    verb: &str,
) -> kube::Result<Vec<OperationStatus>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let resource = kube::api::ApiResource::erase::<K>(&());
    let siblings: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let of_schedule = ListParams::default().labels(&format!("{SCHEDULE_NAME}={schedule}"));
    let mut found = siblings.list_metadata(&of_schedule).await?.items;
    found.retain(|sibling| sibling.uid() != subject.meta().uid);
    found.sort_by_key(|sibling| std::cmp::Reverse(sibling.creation_timestamp()));
    let operations: Api<Operation> = Api::namespaced(client.clone(), namespace);
    let mut runs = Vec::new();
    // A failed run says nothing about the duration of a successful one, so a few more than needed are read.
    for sibling in found.iter().take(2 * MAX_RUNS) {
        let operation = operations.get_opt(&operation_name(verb, &sibling.name_any())).await?;
        runs.extend(operation.and_then(|operation| operation.status).filter(ended_well));
        if runs.len() == MAX_RUNS {
            break;
        }
    }
    Ok(runs)
}

fn ended_well(status: &OperationStatus) -> bool {
    status.state == Some(OperationState::Succeeded) && !status.stages.is_empty()
}

/// The mean duration of each stage, and of the whole.
fn mean(runs: &[OperationStatus]) -> BTreeMap<String, Duration> {
    let mut sums: BTreeMap<String, (Duration, u32)> = BTreeMap::new();
    for run in runs {
        let mut whole = Duration::ZERO;
        for stage in &run.stages {
            let took = stage.milliseconds.and_then(|took| u64::try_from(took).ok()).map(Duration::from_millis);
            let (Some(name), Some(took)) = (&stage.name, took) else { continue };
            whole += took;
            add(&mut sums, name, took);
        }
        add(&mut sums, "", whole);
    }
    let known = sums.into_iter().filter(|(_, (sum, _))| !sum.is_zero());
    known.map(|(path, (sum, count))| (path, sum / count)).collect()
}

fn add(sums: &mut BTreeMap<String, (Duration, u32)>, path: &str, took: Duration) {
    let (sum, count) = sums.entry(path.to_owned()).or_default();
    *sum += took;
    *count += 1;
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};

    use plimsoll_api::plimsoll::v1alpha1::Stage;
    use plimsoll_api::velero::v1::Backup;
    use serde_json::{Value, json};

    use super::*;

    fn run(stages: &[(&str, i64)]) -> OperationStatus {
        let stage = |(name, took): &(&str, i64)| Stage {
            name: Some((*name).to_owned()),
            milliseconds: Some(*took),
            ..Stage::default()
        };
        OperationStatus {
            state: Some(OperationState::Succeeded),
            stages: stages.iter().map(stage).collect(),
            ..OperationStatus::default()
        }
    }

    fn durations<const N: usize>(expected: [(&str, u64); N]) -> BTreeMap<String, Duration> {
        BTreeMap::from(expected.map(|(path, took)| (path.to_owned(), Duration::from_millis(took))))
    }

    #[test]
    fn the_last_runs_tell_how_long_each_stage_takes_and_the_whole() {
        let runs = [run(&[("reading", 4000), ("volumes", 60_000)]), run(&[("reading", 2000), ("volumes", 80_000)])];
        assert_eq!(mean(&runs), durations([("", 73_000), ("reading", 3000), ("volumes", 70_000)]));
        assert_eq!(mean(&[]), BTreeMap::new());
    }

    #[test]
    fn a_stage_counts_only_in_the_runs_that_had_it_and_nonsense_does_not_count() {
        let runs = [run(&[("reading", 4000), ("volumes", 60_000)]), run(&[("reading", 2000)])];
        assert_eq!(mean(&runs), durations([("", 33_000), ("reading", 3000), ("volumes", 60_000)]));
        let mut odd = run(&[("reading", -5), ("saving", 0)]);
        odd.stages.push(Stage { milliseconds: Some(7000), ..Stage::default() });
        odd.stages.push(Stage { name: Some("volumes".into()), ..Stage::default() });
        assert_eq!(mean(&[odd]), BTreeMap::new(), "no name, no duration, none at all: nothing is known");
    }

    /// Backups of the schedule `daily`, the oldest first, each with what its Operation says; null is none.
    struct Past(Vec<(&'static str, Value)>);

    fn ended(state: &str, seconds: i64) -> Value {
        json!({ "state": state, "stages": [{ "name": "reading", "milliseconds": seconds * 1000 }] })
    }

    impl Past {
        /// An API server that has them, and the names that were read.
        fn api(self) -> (Client, Arc<Mutex<Vec<String>>>) {
            let made = |(age, (name, _)): (usize, &(&str, Value))| {
                json!({ "metadata": { "name": name, "uid": format!("uid-{name}"),
                    "creationTimestamp": format!("2026-01-{:02}T00:00:00Z", age + 1) } })
            };
            // Out of order: the API server promises none.
            let items: Vec<Value> = self.0.iter().enumerate().map(made).rev().collect();
            let list = json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {},
                "items": items });
            let operation = |(name, status): (&str, Value)| {
                let name = operation_name("backup", name);
                let object = json!({ "apiVersion": "plimsoll.dev/v1alpha1", "kind": "Operation",
                    "metadata": { "name": name }, "spec": {}, "status": status });
                (name, object)
            };
            let operations: HashMap<String, Value> =
                self.0.into_iter().filter(|(_, status)| !status.is_null()).map(operation).collect();
            answering(move |path| match path.rsplit('/').next().unwrap_or_default() {
                "backups" => Some(list.clone()),
                name => operations.get(name).cloned(),
            })
        }
    }

    /// An API that answers so, or that there is no such thing.
    fn answering(answer: impl Fn(&str) -> Option<Value> + Send + Sync + 'static) -> (Client, Arc<Mutex<Vec<String>>>) {
        let requested: Arc<Mutex<Vec<String>>> = Arc::default();
        let (noted, answer) = (Arc::clone(&requested), Arc::new(answer));
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let path = request.uri().path().to_owned();
            let found = answer(&path);
            noted.lock().unwrap().push(path.rsplit('/').next().unwrap_or_default().to_owned());
            let code = if found.is_some() { 200 } else { 404 };
            let missing =
                json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "" });
            let body = kube::client::Body::from(found.unwrap_or(missing).to_string().into_bytes());
            let response = http::Response::builder().status(code).body(body);
            async move { response }
        });
        (Client::new(service, "velero"), requested)
    }

    fn backup(name: &str, schedule: Option<&str>) -> Backup {
        let labels = schedule.map(|schedule| json!({ (SCHEDULE_NAME): schedule }));
        let metadata = json!({ "name": name, "uid": format!("uid-{name}"), "labels": labels });
        serde_json::from_value(json!({ "metadata": metadata, "spec": {} })).unwrap()
    }

    #[tokio::test]
    async fn only_the_last_three_good_runs_count_and_not_the_one_that_begins() {
        let past = Past(vec![
            ("oldest", ended("Succeeded", 900)),
            ("a", ended("Succeeded", 30)),
            ("b", ended("Succeeded", 20)),
            ("forgotten", Value::Null),
            ("broken", ended("Failed", 500)),
            ("c", ended("Succeeded", 10)),
            ("now", ended("Succeeded", 700)),
        ]);
        let (client, requested) = past.api();
        let expected = expected_durations(&client, "velero", &backup("now", Some("daily")), "backup").await;
        assert_eq!(expected, durations([("", 20_000), ("reading", 20_000)]));
        let requested = requested.lock().unwrap().join(" ");
        assert_eq!(requested, "backups backup-c backup-broken backup-forgotten backup-b backup-a");
    }

    #[tokio::test]
    async fn a_long_row_of_failures_is_not_followed_to_its_end() {
        let names = ["good", "f1", "f2", "f3", "f4", "f5", "f6"];
        let past = names.map(|name| (name, ended(if name == "good" { "Succeeded" } else { "Failed" }, 10)));
        let (client, requested) = Past(past.into()).api();
        assert_eq!(
            expected_durations(&client, "velero", &backup("now", Some("daily")), "backup").await,
            BTreeMap::new()
        );
        assert_eq!(requested.lock().unwrap().len(), 1 + 2 * MAX_RUNS);
    }

    #[tokio::test]
    async fn without_a_schedule_no_request_is_made_and_an_api_that_refuses_costs_only_the_estimate() {
        let (client, requested) = Past(vec![("a", ended("Succeeded", 30))]).api();
        assert_eq!(expected_durations(&client, "velero", &backup("now", None), "backup").await, BTreeMap::new());
        assert!(requested.lock().unwrap().is_empty());
        let (refusing, requested) = answering(|_| None);
        assert_eq!(
            expected_durations(&refusing, "velero", &backup("now", Some("daily")), "backup").await,
            BTreeMap::new()
        );
        assert_eq!(requested.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_run_that_wrote_down_no_stages_tells_nothing() {
        let past = Past(vec![("a", ended("Succeeded", 30)), ("b", json!({ "state": "Succeeded", "stages": [] }))]);
        let expected = expected_durations(&past.api().0, "velero", &backup("now", Some("daily")), "backup").await;
        assert_eq!(expected, durations([("", 30_000), ("reading", 30_000)]));
    }
}
