//! What earlier runs of the same schedule tell about this one: how long it takes in all, and how long each stage.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{DynamicObject, ListParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use plimsoll_api::labels::SCHEDULE_NAME;
use plimsoll_api::plimsoll::v1alpha1::{Operation, OperationState, OperationStatus};
use tracing::debug;

use crate::context::Context;
use crate::operation::operation_name;

/// So many of the last runs are looked at.
const RUNS: usize = 3;

/// How long the stages took (and, at the empty path, the whole) in the last good runs of the schedule that this subject belongs
/// to. Nothing for one without a schedule, or if nobody knows: it is only a first estimate.
pub(crate) async fn usual<K>(context: &Context, subject: &K, verb: &str) -> BTreeMap<String, Duration>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let Some(schedule) = subject.labels().get(SCHEDULE_NAME) else { return BTreeMap::new() };
    match last_runs::<K>(context, schedule, subject, verb).await {
        Ok(runs) => mean(&runs),
        Err(error) => {
            debug!("earlier runs of schedule {schedule}: {error}");
            BTreeMap::new()
        }
    }
}

async fn last_runs<K>(context: &Context, schedule: &str, subject: &K, verb: &str) -> kube::Result<Vec<OperationStatus>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let namespace = &context.settings.namespace;
    let resource = kube::api::ApiResource::erase::<K>(&());
    let siblings: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), namespace, &resource);
    let of_schedule = ListParams::default().labels(&format!("{SCHEDULE_NAME}={schedule}"));
    let mut found = siblings.list_metadata(&of_schedule).await?.items;
    found.retain(|sibling| sibling.uid() != subject.meta().uid);
    found.sort_by_key(|sibling| std::cmp::Reverse(sibling.creation_timestamp()));
    let operations: Api<Operation> = Api::namespaced(context.client.clone(), namespace);
    let mut runs = Vec::new();
    // One that failed says nothing about how long a good one takes, so a few more than are needed are looked at.
    for sibling in found.iter().take(2 * RUNS) {
        let operation = operations.get_opt(&operation_name(verb, &sibling.name_any())).await?;
        runs.extend(operation.and_then(|operation| operation.status).filter(ended_well));
        if runs.len() == RUNS {
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
    use plimsoll_api::plimsoll::v1alpha1::Stage;

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

    #[test]
    fn the_last_runs_tell_how_long_each_stage_takes_and_the_whole() {
        let runs = [run(&[("reading", 4000), ("volumes", 60_000)]), run(&[("reading", 2000), ("volumes", 80_000)])];
        let expected = [("", 73_000), ("reading", 3000), ("volumes", 70_000)];
        let expected = expected.map(|(path, took)| (path.to_owned(), Duration::from_millis(took)));
        assert_eq!(mean(&runs), BTreeMap::from(expected));
        assert_eq!(mean(&[]), BTreeMap::new());
    }
}
