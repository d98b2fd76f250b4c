//! A restore from its first write to its last file.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_archive::layout;
use plimsoll_archive::volume_info::RestoreVolumeInfo;
use plimsoll_progress::{Unit, Work};
use plimsoll_store::Store;

use super::env::{RestoreEnv, RestoreInput, RestoreState};
use super::hooks::HookCounts;
use super::prepare::prepare;
use super::restore_files;
use super::run::RestoreRun;
use crate::item_operations::{
    ItemOperationCounts, ItemOperationOwner, OperationsFile, OperationsWait, operation_timeout, wait_for_operations,
};
use crate::outcome::{Results, Scope};
use crate::stages::Stages;
use crate::{Error, unless_cancelled};

/// The stages, and about how long they take for a few thousand objects: their weights in the percentage until more is known.
const STAGES: [(&str, Work); 5] = [
    ("planning", Work::fixed(Duration::from_secs(1))),
    ("restoring", Work::assumed(Duration::from_secs(30))),
    // What the volumes need is planned for each of them.
    ("volumes", Work::fixed(Duration::from_millis(100))),
    ("finalizing", Work::fixed(Duration::from_millis(500))),
    ("saving", Work::fixed(Duration::from_millis(500))),
];

/// The results of a restore.
#[derive(Clone, Debug)]
pub struct RestoreResults {
    /// Errors and warnings.
    pub results: Results,
    /// Counts of hooks.
    pub hooks: HookCounts,
    /// Counts of item operations.
    pub operations: ItemOperationCounts,
    /// When all files were written.
    pub completed: Timestamp,
}

/// Restores what `input` selects. Failed items are part of the results, not errors.
///
/// # Cancel safety
/// Cancelling keeps the objects that were created. If the future is dropped, the next attempt skips or updates them.
pub async fn execute(input: RestoreInput, env: RestoreEnv<'_>) -> Result<RestoreResults, Error> {
    let stages = Stages::plan(&env.operation.root, &STAGES);
    let begun = env.object.begin().await?;
    let state = RestoreState::new(begun, stages, &env)?;
    let restored = Box::pin(restore(&input, &env, &state)).await;
    env.extensions.close().await;
    let (run, mut volumes) = restored?;
    volumes.extend(env.extensions.volume_infos());
    let hooks = unless_cancelled(&env.operation.cancel, finalize(&env, &state, &run)).await?;
    drop(run);
    save(&input, &env, state, &volumes, hooks).await
}

/// Restores the items and the data of volumes, and waits for item operations.
async fn restore(
    input: &RestoreInput,
    env: &RestoreEnv<'_>,
    state: &RestoreState,
) -> Result<(RestoreRun, Vec<RestoreVolumeInfo>), Error> {
    let run = unless_cancelled(&env.operation.cancel, Box::pin(prepare(input, env, state))).await?;
    // The total is known, and written, before the first object is created.
    run.task.meter(Unit::Items).set_total(run.plan.initial_total(&run.rules.actions));
    env.object.show_total().await?;
    if let Err(error) = run.run().await {
        state.operations.cancel(&state.begun.restore).await;
        return Err(error);
    }
    run.task.finish();
    let volumes = unless_cancelled(&env.operation.cancel, finish_volumes(state, &run)).await?;
    wait_for_item_operations(input, env, state).await?;
    Ok((run, volumes))
}

/// Waits for the data of pod volumes.
async fn finish_volumes(state: &RestoreState, run: &RestoreRun) -> Result<Vec<RestoreVolumeInfo>, Error> {
    let Some(data) = &run.rules.data else {
        let stage = state.stages.stage("volumes");
        stage.skip_rest("it was not restored");
        stage.task.finish();
        return Ok(Vec::new());
    };
    let done = data.finish().await?;
    for (namespace, error) in &done.errors {
        state.recorder.error(&Scope::Namespace(namespace.clone()), error);
    }
    for (namespace, warning) in done.warnings {
        state.recorder.warn(&Scope::Namespace(namespace), warning);
    }
    Ok(done.infos)
}

async fn wait_for_item_operations(
    input: &RestoreInput,
    env: &RestoreEnv<'_>,
    state: &RestoreState,
) -> Result<(), Error> {
    if state.operations.is_empty() {
        state.stages.skip_operations();
        return Ok(());
    }
    let (name, uid) = (input.restore.name_any(), input.restore.uid().unwrap_or_default());
    let wait = OperationsWait {
        file: operations_file(&state.begun.store, &name, &uid),
        subject: &state.begun.restore,
        cancel: &env.operation.cancel,
        root: &env.operation.root,
        stage: state.stages.operations(),
        timeout: operation_timeout(input.restore.spec.item_operation_timeout.as_ref()),
    };
    let announce = async { env.object.show_waiting(state.operations.counts(), state.has_failed()).await };
    wait_for_operations(&state.operations, wait, announce).await?;
    for (scope, failure) in state.operations.failures() {
        state.recorder.error(&scope, failure);
    }
    Ok(())
}

fn operations_file<'a>(store: &'a Store, name: &'a str, uid: &'a str) -> OperationsFile<'a> {
    OperationsFile {
        store,
        key: layout::restore_item_operations(name),
        owner: ItemOperationOwner { verb: "restore", name, uid },
    }
}

/// Sets up the volumes that were provisioned, and waits for the hooks in restored pods.
async fn finalize(env: &RestoreEnv<'_>, state: &RestoreState, run: &RestoreRun) -> Result<HookCounts, Error> {
    let finalizing = state.stages.start("finalizing");
    env.object.show_finalizing(state.has_failed()).await?;
    let ((), counts) =
        tokio::try_join!(run.set_up_provisioned_volumes(&finalizing), async { run.rules.hooks.finish().await })?;
    finalizing.finish();
    Ok(counts)
}

/// Writes the files of the restore.
async fn save(
    input: &RestoreInput,
    env: &RestoreEnv<'_>,
    state: RestoreState,
    volumes: &[RestoreVolumeInfo],
    hooks: HookCounts,
) -> Result<RestoreResults, Error> {
    let saving = state.stages.start("saving");
    state.plugin_log.detach();
    let recorder = Arc::into_inner(state.recorder).ok_or_else(|| {
        Error::scratch(&env.operation.scratch, std::io::Error::other("the recorder is still in use after restoring"))
    })?;
    let recorded = recorder.finish()?;
    let (name, uid) = (input.restore.name_any(), input.restore.uid().unwrap_or_default());
    restore_files::save(&state.begun.store, &name, &recorded, volumes, &saving, env.operation.guard.as_ref()).await?;
    if !state.operations.is_empty() {
        operations_file(&state.begun.store, &name, &uid).save(&state.operations, &saving).await?;
    }
    saving.finish();
    env.operation.guard.check_commit().await?;
    let (operations, completed) = (state.operations.counts(), Timestamp::now());
    Ok(RestoreResults { results: recorded.results, hooks, operations, completed })
}
