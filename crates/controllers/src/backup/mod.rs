//! Backup.

mod ending;
mod expiry_limits;
mod extensions;
pub mod garbage_collection;
mod object;
pub mod verification;
mod volumes;

use std::collections::BTreeSet;

use kube::ResourceExt;
use plimsoll_api::validate;
use plimsoll_api::velero::v1::{Backup, BackupPhase, BackupSpec};
use plimsoll_engine::Error;
use plimsoll_engine::backup::{self, BackupEnv, BackupInput, BackupOutcome};
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_operations::{Completion, ItemCounters, Job, Lifecycle, Requirements, SubjectState};
use plimsoll_select::includes::IncludesExcludes;
use plimsoll_volumes::snapshotter;
use plimsoll_volumes::storage_location::{LocationLookup, is_read_only};
use serde_json::{Value, json};

use self::extensions::JobExtensions;
use self::object::JobBackup;
use crate::context::Context;
use crate::resource_policy;

/// The lifecycle of a Backup.
pub struct BackupController;

impl Lifecycle for BackupController {
    type Resource = Backup;
    type Context = Context;
    type LiveState = ();
    const VERB: &'static str = "backup";
    const ITEM_COUNTERS: ItemCounters = ItemCounters { stage: "reading", done: "itemsBackedUp" };

    fn state(phase: &str) -> SubjectState {
        match BackupPhase::from(phase) {
            BackupPhase::New | BackupPhase::Queued | BackupPhase::ReadyToStart => SubjectState::New,
            BackupPhase::Other(text) if text.is_empty() => SubjectState::New,
            BackupPhase::InProgress
            | BackupPhase::WaitingForPluginOperations
            | BackupPhase::WaitingForPluginOperationsPartiallyFailed
            | BackupPhase::Finalizing
            | BackupPhase::FinalizingPartiallyFailed => SubjectState::InProgress,
            phase if phase.is_ended() => SubjectState::Ended,
            _ => SubjectState::Unmanaged,
        }
    }

    fn set_defaults(subject: &mut Backup, context: &Context) {
        context.settings.defaults.set_in_backup(&mut subject.spec);
    }

    fn validate(raw: &Value) -> Vec<String> {
        validate::check(raw).err().map(|invalid| invalid.lines()).unwrap_or_default()
    }

    async fn check_requirements(subject: &Backup, context: &Context) -> Result<Requirements, Error> {
        let mut needs = match context.storage.find(subject.spec.storage_location.as_deref()).await? {
            LocationLookup::Usable(found) if is_read_only(&found) => Requirements {
                faults: vec![format!("BackupStorageLocation {} is read-only", found.name_any())],
                missing: None,
            },
            LocationLookup::Usable(_) => Requirements::default(),
            LocationLookup::Unusable(fault) => Requirements { faults: vec![fault], missing: None },
            LocationLookup::Unchecked(what) => Requirements { faults: Vec::new(), missing: Some(what) },
        };
        needs.faults.extend(filter_faults(context, &subject.spec).await?);
        needs.faults.extend(snapshotter::choose(&context.snapshots, &subject.spec).await?.err());
        Ok(needs)
    }

    fn concurrency(context: &Context) -> usize {
        context.settings.concurrency
    }

    fn queued_status(position: usize) -> Option<Value> {
        Some(json!({ "phase": "Queued", "queuePosition": position }))
    }

    /// An expression that cannot be read claims nothing: validation names it.
    fn exclusive_namespaces(object: &Value, namespaces: &[String]) -> BTreeSet<String> {
        let names = |field: &str| -> Vec<String> {
            let list = object.pointer(&format!("/spec/{field}")).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        match IncludesExcludes::new(&names("includedNamespaces"), &names("excludedNamespaces")) {
            Ok(filter) => namespaces.iter().filter(|name| filter.includes(name)).cloned().collect(),
            Err(_) => BTreeSet::new(),
        }
    }

    async fn execute(job: &Job<Self>) -> Result<Completion, Error> {
        let (object, extensions) = (JobBackup::new(job), JobExtensions::new(job));
        let input = BackupInput {
            name: job.id.name.clone(),
            uid: job.id.uid.clone(),
            spec: job.subject.spec.clone(),
            journal_entries: job.journal_entries.clone(),
        };
        let env = BackupEnv {
            operation: job.engine_env(),
            object: &object,
            extensions: &extensions,
            item_workers: job.context.settings.item_workers,
        };
        Ok(match Box::pin(backup::execute(input, env)).await? {
            BackupOutcome::Committed(results) => ending::completion_of(&results),
            BackupOutcome::AlreadyCommitted(metadata) => ending::adopt(&metadata),
        })
    }
}

/// The defects of the filters that can be found before the cluster is read.
async fn filter_faults(context: &Context, spec: &BackupSpec) -> Result<Vec<String>, Error> {
    Ok(match resource_policy::backup_policies(context, spec.resource_policy.as_ref()).await? {
        Ok(policies) => ItemFilter::for_backup(spec, policies.as_ref(), &[], &[]).err().map(|e| e.to_string()),
        Err(fault) => Some(fault),
    }
    .into_iter()
    .collect())
}
