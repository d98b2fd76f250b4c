//! The preparation of a Restore: its actions, its rules and its plan.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_api::velero::v1::{Backup, RestoreSpec};
use plimsoll_archive::layout;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::item_operations::ItemOperations;
use plimsoll_engine::outcome::{Recorder, Scope};
use plimsoll_engine::ports::{Effect, Journal, LeadershipGuard};
use plimsoll_engine::restore::actions::{ActionContext, Actions, register_built_ins};
use plimsoll_engine::restore::hooks::{HookContext, PreviousHook, RestoreHookRunner, RestoreHooks};
use plimsoll_engine::restore::{
    self, BackupVolumes, ExistingPolicy, RestoreOrigin, RestorePlan, RestoreRules, RestoreRun, RestoreTimeouts,
    RunState,
};
use plimsoll_engine::{Error, RetryPolicy, show_store_waits};
use plimsoll_operations::{Job, Stages};
use plimsoll_progress::Task;
use plimsoll_select::includes::IncludesExcludes;
use plimsoll_select::resources::ResourceMapper;
use plimsoll_store::Store;
use plimsoll_volumes::{csi, fs_backup};
use serde_json::Value;

use super::RestoreController;
use super::plugins::RestorePlugins;
use super::resolved_spec::ResolvedSpec;
use super::volumes::{csi_parameters, files_to_restore, fs_restore, snapshot_restore};

/// The first step: what the Restore says, and the plan.
pub(super) async fn prepare(
    job: &Job<RestoreController>,
    store: &Store,
    begun: &Value,
    backup: &Backup,
    recorder: &Arc<Recorder>,
    plugins: &RestorePlugins,
    stages: &Stages,
) -> Result<RestoreRun, Error> {
    let planning = stages.start("planning");
    let _waits = show_store_waits(store, &planning);
    planning.say("discovering resources");
    let spec = &job.subject.spec;
    let resolved = job.read(|| ResolvedSpec::read(&job.context, spec)).await?.map_err(Error::Selection)?;
    let discovered = RetryPolicy::default().run(&planning, || job.context.leader.cluster.discover()).await?;
    let item_filter = Arc::new(ItemFilter::for_restore(spec, resolved.policies.as_ref(), &discovered.resources)?);
    let hooks = Arc::new(resolved.hooks);
    let mut actions = job.read(|| built_in_actions(job, &hooks, &item_filter)).await?;
    let csi = csi::register_restore(csi_parameters(job, backup, stages), &mut actions, item_filter.catalog())?;
    let _ = plugins.csi.set(Arc::clone(&csi));
    plugins.add(job, &mut actions, &item_filter, begun).await?;
    let volumes =
        BackupVolumes::read(store, &backup.name_any(), spec.restore_pvs).await?.with_csi(csi.supports_snapshots());
    let (limit, unread) =
        fs_backup::transfer_timeout(job.subject.annotations(), job.context.settings.fs_backup_timeout);
    if let Some(warning) = unread {
        recorder.warn(&Scope::Operation, warning);
    }
    let files = files_to_restore(&volumes, &item_filter, recorder);
    let data = fs_restore(job, backup, files, limit, &mut actions, item_filter.catalog(), stages)?;
    let operations = Arc::new(ItemOperations::new(Arc::clone(&job.journal) as Arc<dyn Journal>));
    let snapshots = snapshot_restore(job, backup, &volumes, &operations, plugins, stages);
    let plan = make_plan(job, store, backup, &item_filter, &actions, recorder, &planning).await?;
    let rules = RestoreRules {
        status: status_filter(spec, &item_filter)?,
        resources: discovered.resources,
        restore: begun.clone(),
        existing: existing_policy(spec),
        modifiers: resolved.modifiers,
        hooks: Arc::new(RestoreHookRunner::new(hooks, hook_context(job, stages))),
        timeouts: timeouts(job),
        item_filter,
        actions,
        volumes,
        data,
        snapshots,
    };
    planning.finish();
    Ok(assemble(job, plan, rules, backup, recorder, operations, stages.start("restoring")))
}

async fn make_plan(
    job: &Job<RestoreController>,
    store: &Store,
    backup: &Backup,
    item_filter: &Arc<ItemFilter>,
    actions: &Actions,
    recorder: &Arc<Recorder>,
    planning: &Task,
) -> Result<RestorePlan, Error> {
    let key = layout::backup_contents(&backup.name_any());
    let (item_filter, recorder_too) = (Arc::clone(item_filter), Arc::clone(recorder));
    let plan = restore::plan(store, &key, item_filter, actions, job.scratch.path(), recorder_too, planning).await?;
    recorder.log().info(format!("{} items selected, {} excluded by filters", plan.total(), plan.excluded));
    Ok(plan)
}

fn assemble(
    job: &Job<RestoreController>,
    plan: RestorePlan,
    rules: RestoreRules,
    backup: &Backup,
    recorder: &Arc<Recorder>,
    operations: Arc<ItemOperations>,
    restoring: Task,
) -> RestoreRun {
    let origin = RestoreOrigin {
        restore: job.subject.name_any(),
        created: job.subject.metadata.creation_timestamp.clone().map_or(Timestamp::MIN, |time| time.0),
        backup: backup.name_any(),
        namespaces: job.subject.spec.namespace_mapping.clone(),
    };
    RestoreRun {
        cluster: job.context.leader.cluster.clone(),
        origin,
        state: RunState::new(&plan, &restoring),
        plan,
        rules,
        task: restoring,
        guard: Arc::clone(&job.record) as Arc<dyn LeadershipGuard>,
        cancel: job.cancel.clone(),
        recorder: Arc::clone(recorder),
        operations,
    }
}

async fn built_in_actions(
    job: &Job<RestoreController>,
    hooks: &Arc<RestoreHooks>,
    item_filter: &ItemFilter,
) -> Result<Actions, Error> {
    let mut actions = Actions::default();
    let context = ActionContext {
        cluster: &job.context.leader.cluster,
        namespace: &job.context.leader.namespace,
        restore: &job.subject,
        hooks: Arc::clone(hooks),
    };
    register_built_ins(&mut actions, &context, item_filter.catalog()).await?;
    Ok(actions)
}

fn existing_policy(spec: &RestoreSpec) -> ExistingPolicy {
    match spec.existing_resource_policy.as_deref() {
        Some("update") => ExistingPolicy::Update,
        _ => ExistingPolicy::None,
    }
}

/// The resources whose status is restored; none if the Restore does not speak of status.
fn status_filter(spec: &RestoreSpec, item_filter: &ItemFilter) -> Result<Option<IncludesExcludes>, Error> {
    let Some(status) = &spec.restore_status else { return Ok(None) };
    let resolve = |names: &[String]| -> Vec<String> {
        let group_resource = |name: &String| item_filter.catalog().resolve(name).map(|found| found.group_resource);
        names.iter().map(|name| group_resource(name).unwrap_or_else(|| name.clone())).collect()
    };
    let filter = IncludesExcludes::new(&resolve(&status.included_resources), &resolve(&status.excluded_resources));
    filter.map(Some).map_err(|error| Error::Selection(format!("spec.restoreStatus: {error}")))
}

fn timeouts(job: &Job<RestoreController>) -> RestoreTimeouts {
    let settings = &job.context.settings;
    RestoreTimeouts {
        resource: settings.resource_timeout,
        terminating: settings.terminating_timeout,
        ..RestoreTimeouts::default()
    }
}

fn hook_context(job: &Job<RestoreController>, stages: &Stages) -> HookContext {
    let hooks = job.journal_entries.iter().filter(|known| matches!(known.effect, Effect::Hooks { .. }));
    HookContext {
        cluster: job.context.leader.cluster.clone(),
        journal: Arc::clone(&job.journal) as Arc<dyn Journal>,
        guard: Arc::clone(&job.record) as Arc<dyn LeadershipGuard>,
        task: stages.planned("finalizing"),
        previous: hooks
            .map(|known| PreviousHook { effect: known.effect.clone(), result: known.result.clone() })
            .collect(),
        wait: job.context.settings.resource_timeout,
    }
}
