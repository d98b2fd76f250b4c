//! Restore.

mod extensions;
pub mod files;
mod object;
mod resolved_spec;
mod source;
mod volumes;

use plimsoll_api::velero::v1::{PodVolumeRestore, Restore, RestorePhase};
use plimsoll_api::velero::v2alpha1::DataDownload;
use plimsoll_api::{labels, validate};
use plimsoll_engine::Error;
use plimsoll_engine::restore::hooks::HookCounts;
use plimsoll_engine::restore::{self, RestoreEnv, RestoreInput, RestoreResults, RestoreTimeouts};
use plimsoll_operations::{Completion, ItemCounters, Job, Lifecycle, Requirements, SubjectState};
use plimsoll_select::resource_order::NON_RESTORABLE_RESOURCES;
use plimsoll_volumes::fs_backup;
use plimsoll_volumes::storage_location::LocationLookup;
use serde_json::{Value, json};

use self::extensions::JobExtensions;
use self::object::JobRestore;
use self::resolved_spec::resolve_spec;
use self::source::find_backup;
use crate::completion;
use crate::context::Context;

/// The lifecycle of a Restore.
pub struct RestoreController;

impl Lifecycle for RestoreController {
    type Resource = Restore;
    type Context = Context;
    type LiveState = ();
    const VERB: &'static str = "restore";
    const ITEM_COUNTERS: ItemCounters = ItemCounters { stage: "restoring", done: "itemsRestored" };
    const FINALIZER: Option<&'static str> = Some(labels::RESTORE_FINALIZER);

    fn state(phase: &str) -> SubjectState {
        match RestorePhase::from(phase) {
            RestorePhase::New => SubjectState::New,
            RestorePhase::Other(text) if text.is_empty() => SubjectState::New,
            RestorePhase::InProgress
            | RestorePhase::WaitingForPluginOperations
            | RestorePhase::WaitingForPluginOperationsPartiallyFailed
            | RestorePhase::Finalizing
            | RestorePhase::FinalizingPartiallyFailed => SubjectState::InProgress,
            phase if phase.is_ended() => SubjectState::Ended,
            _ => SubjectState::Unmanaged,
        }
    }

    fn set_defaults(subject: &mut Restore, context: &Context) {
        context.settings.defaults.set_in_restore(&mut subject.spec);
    }

    fn validate(raw: &Value) -> Vec<String> {
        let mut faults = validate::check(raw).err().map(|invalid| invalid.lines()).unwrap_or_default();
        let included = raw.pointer("/spec/includedResources").and_then(Value::as_array).into_iter().flatten();
        let never = included.filter_map(Value::as_str).filter(|name| NON_RESTORABLE_RESOURCES.contains(name));
        faults.extend(never.map(|name| format!("spec.includedResources: {name} are never restored")));
        faults
    }

    async fn check_requirements(subject: &Restore, context: &Context) -> Result<Requirements, Error> {
        let mut needs = match find_backup(context, subject).await? {
            Err(fault) => Requirements { faults: vec![fault], missing: None },
            Ok(backup) => match context.storage.find(backup.spec.storage_location.as_deref()).await? {
                LocationLookup::Usable(_) => Requirements::default(),
                LocationLookup::Unusable(fault) => Requirements { faults: vec![fault], missing: None },
                LocationLookup::Unchecked(what) => Requirements { faults: Vec::new(), missing: Some(what) },
            },
        };
        needs.faults.extend(resolve_spec(context, &subject.spec).await?.err());
        Ok(needs)
    }

    fn concurrency(context: &Context) -> usize {
        context.settings.concurrency
    }

    fn queued_status(_: usize) -> Option<Value> {
        None
    }

    async fn execute(job: &Job<Self>) -> Result<Completion, Error> {
        let (object, extensions) = (JobRestore(job), JobExtensions::new(job));
        let (context, settings) = (&job.context, &job.context.settings);
        let input = RestoreInput { restore: job.subject.clone(), journal_entries: job.journal_entries.clone() };
        let env = RestoreEnv {
            operation: job.engine_env(),
            namespace: context.leader.namespace.clone(),
            object: &object,
            extensions: &extensions,
            timeouts: RestoreTimeouts {
                resource: settings.resource_timeout,
                terminating: settings.terminating_timeout,
                ..RestoreTimeouts::default()
            },
            priorities: settings.defaults.restore_priorities.clone(),
        };
        Ok(completion_of(&Box::pin(restore::execute(input, env)).await?))
    }

    /// What was created stays: it is counted, and the user decides about it. What still moves is stopped.
    async fn abort(job: &Job<Self>, _: &Error) {
        let own = format!("{}={}", labels::RESTORE_UID, job.id.uid);
        fs_backup::cancel_transfers::<PodVolumeRestore>(&job.context.leader, &own, &job.tree.root()).await;
        fs_backup::cancel_transfers::<DataDownload>(&job.context.leader, &own, &job.tree.root()).await;
    }
}

fn completion_of(results: &RestoreResults) -> Completion {
    let mut completion = completion::of(&results.results, results.completed);
    let HookCounts { attempted, failed } = results.hooks;
    if attempted > 0 {
        completion.status["hookStatus"] = json!({ "hooksAttempted": attempted, "hooksFailed": failed });
    }
    completion::add_item_operations(&mut completion, RestoreController::VERB, results.operations);
    completion
}
