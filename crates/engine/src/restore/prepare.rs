//! The preparation of a restore: its rules and its plan.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_api::velero::v1::RestoreSpec;
use plimsoll_archive::layout;
use plimsoll_progress::Task;
use plimsoll_select::includes::IncludesExcludes;
use plimsoll_select::resources::ResourceMapper;

use super::action::RestoreItemAction;
use super::actions::{ActionContext, Actions, register_built_ins};
use super::backup_volumes::BackupVolumes;
use super::env::{ResolvedSpec, RestoreEnv, RestoreInput, RestoreState};
use super::existing_object::ExistingPolicy;
use super::hooks::{HookContext, RestoreHookRunner, RestoreHooks};
use super::item::RestoreOrigin;
use super::plan::{RestorePlan, plan};
use super::run::{RestoreRules, RestoreRun, RunState};
use crate::item_filter::ItemFilter;
use crate::item_operations::cancel_abandoned;
use crate::outcome::Scope;
use crate::ports::Effect;
use crate::{Error, RetryPolicy, show_store_waits};

/// Makes the rules and the plan, and cancels the item operations that an earlier attempt left running.
pub(super) async fn prepare(
    input: &RestoreInput,
    env: &RestoreEnv<'_>,
    state: &RestoreState,
) -> Result<RestoreRun, Error> {
    let planning = state.stages.start("planning");
    let _waits = show_store_waits(&state.begun.store, &planning);
    planning.say("discovering resources");
    let mut rules = make_rules(input, env, state, &planning).await?;
    env.extensions.prepare(&mut rules, state).await?;
    let operation_client = |action: &Arc<dyn RestoreItemAction>| Arc::clone(action).operation_client();
    let (entries, journal) = (&input.journal_entries, env.operation.journal.as_ref());
    cancel_abandoned(entries, &rules.actions, operation_client, &state.begun.restore, journal).await?;
    let plan = make_plan(env, state, &rules, &planning).await?;
    planning.finish();
    let task = state.stages.start("restoring");
    Ok(RestoreRun {
        cluster: env.operation.cluster.clone(),
        origin: origin(input, state),
        state: RunState::new(&plan, &task),
        plan,
        rules,
        task,
        guard: Arc::clone(&env.operation.guard),
        cancel: env.operation.cancel.clone(),
        recorder: Arc::clone(&state.recorder),
        operations: Arc::clone(&state.operations),
    })
}

/// The rules without plugins and volume data.
async fn make_rules(
    input: &RestoreInput,
    env: &RestoreEnv<'_>,
    state: &RestoreState,
    planning: &Task,
) -> Result<RestoreRules, Error> {
    let spec = &input.restore.spec;
    let resolved = RetryPolicy::default().run(&env.operation.root, || env.object.resolve_spec()).await?;
    let ResolvedSpec { policies, modifiers, hooks, warnings } = resolved;
    for warning in warnings {
        state.recorder.warn(&Scope::Cluster, warning);
    }
    let resources = RetryPolicy::default().run(planning, || env.operation.cluster.discover()).await?.resources;
    let item_filter = ItemFilter::for_restore(spec, policies.as_ref(), &resources)?;
    let item_filter = Arc::new(item_filter.with_priorities(&env.priorities));
    let hooks = Arc::new(hooks);
    let actions =
        RetryPolicy::default().run(&env.operation.root, || built_in_actions(input, env, &hooks, &item_filter)).await?;
    Ok(RestoreRules {
        status: status_filter(spec, &item_filter)?,
        resources,
        restore: state.begun.restore.clone(),
        existing: existing_policy(spec),
        modifiers,
        hooks: Arc::new(RestoreHookRunner::new(hooks, hook_context(input, env, state))),
        timeouts: env.timeouts,
        item_filter,
        actions,
        volumes: BackupVolumes::read(&state.begun.store, &state.begun.backup.name_any(), spec.restore_pvs).await?,
        data: None,
        snapshots: None,
    })
}

async fn make_plan(
    env: &RestoreEnv<'_>,
    state: &RestoreState,
    rules: &RestoreRules,
    planning: &Task,
) -> Result<RestorePlan, Error> {
    let key = layout::backup_contents(&state.begun.backup.name_any());
    let (item_filter, recorder) = (Arc::clone(&rules.item_filter), Arc::clone(&state.recorder));
    let plan =
        plan(&state.begun.store, &key, item_filter, &rules.actions, &env.operation.scratch, recorder, planning).await?;
    state.recorder.log().info(format!("{} items selected, {} excluded by filters", plan.total(), plan.excluded));
    Ok(plan)
}

fn origin(input: &RestoreInput, state: &RestoreState) -> RestoreOrigin {
    let restore = &input.restore;
    RestoreOrigin {
        restore: restore.name_any(),
        created: restore.metadata.creation_timestamp.clone().map_or(Timestamp::MIN, |time| time.0),
        backup: state.begun.backup.name_any(),
        namespaces: restore.spec.namespace_mapping.clone(),
    }
}

async fn built_in_actions(
    input: &RestoreInput,
    env: &RestoreEnv<'_>,
    hooks: &Arc<RestoreHooks>,
    item_filter: &ItemFilter,
) -> Result<Actions, Error> {
    let mut actions = Actions::default();
    let context = ActionContext {
        cluster: &env.operation.cluster,
        namespace: &env.namespace,
        restore: &input.restore,
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

/// The resources whose status is restored; none if the Restore does not mention status.
fn status_filter(spec: &RestoreSpec, item_filter: &ItemFilter) -> Result<Option<IncludesExcludes>, Error> {
    let Some(status) = &spec.restore_status else { return Ok(None) };
    let resolve = |names: &[String]| -> Vec<String> {
        let group_resource = |name: &String| item_filter.catalog().resolve(name).map(|found| found.group_resource);
        names.iter().map(|name| group_resource(name).unwrap_or_else(|| name.clone())).collect()
    };
    let filter = IncludesExcludes::new(&resolve(&status.included_resources), &resolve(&status.excluded_resources));
    filter.map(Some).map_err(|error| Error::Selection(format!("spec.restoreStatus: {error}")))
}

fn hook_context(input: &RestoreInput, env: &RestoreEnv<'_>, state: &RestoreState) -> HookContext {
    let hooks = input.journal_entries.iter().filter(|entry| matches!(entry.effect, Effect::Hooks { .. }));
    HookContext {
        cluster: env.operation.cluster.clone(),
        journal: Arc::clone(&env.operation.journal),
        guard: Arc::clone(&env.operation.guard),
        task: state.stages.planned("finalizing"),
        previous: hooks.cloned().collect(),
        wait: env.timeouts.resource,
    }
}
