//! Plugins at work: found when the server starts, one process for each binary and operation.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::velero::v1::RestoreSpec;
use plimsoll_engine::backup::actions::{BackupItemActions, ItemBlockActions};
use plimsoll_engine::delete::DeleteItemAction;
use plimsoll_engine::log::Level;
use plimsoll_engine::operations::{OperationCounts, Operations, Owner};
use plimsoll_engine::registry::Registry;
use plimsoll_engine::restore::actions::Actions;
use plimsoll_engine::selection::Selecting;
use plimsoll_engine::{Error, Heard, Patience, kill};
use plimsoll_plugin::{
    Environment, LaunchConfig, LogSink, OperationLogSink, PluginActions, PluginKind, PluginRegistry, TracingLogSink,
    USE_PLUGIN_CONFIG_KEY,
};
use plimsoll_progress::Task;
use plimsoll_select::resources::ResourceMapper;
use plimsoll_store::{Location, Store, StoreError};
use serde_json::{Value, json};

use crate::context::{Context, Settings};
use crate::csi::{self, Forgetting};
use crate::journal::Known;
use crate::subject::{self, Job};

/// How often the file of the operations is brought up to date.
const SAVED_EVERY: Duration = Duration::from_secs(10);

/// The providers that need no plugin.
const BUILT_IN: [&str; 5] = ["aws", "gcp", "azure", "directory", "local"];

/// Asks every binary in the plugin directory what it offers.
pub async fn discover(settings: &Settings) -> PluginRegistry {
    let plugins = &settings.plugins;
    let Some(directory) = &plugins.directory else { return PluginRegistry::default() };
    let removed = plimsoll_plugin::remove_stale_files();
    if removed > 0 {
        tracing::info!("{removed} sockets and credentials of plugins that a killed server left behind are removed");
    }
    let launch = LaunchConfig {
        environment: Environment::from_process(&settings.namespace, &plugins.environment),
        arguments: vec!["--log-level".to_owned(), "info".to_owned()],
        guard: plugins.guard.clone(),
        ..LaunchConfig::default()
    };
    let registry = PluginRegistry::discover(directory, launch).await;
    for registered in registry.plugins() {
        tracing::info!("plugin {}: {} {}", registered.binary.display(), registered.kind, registered.name);
    }
    registry
}

/// Opens a location: by way of a plugin if it asks for that, or if its provider is not built in and a plugin's.
pub fn open_store(place: &Location, plugins: Option<&PluginRegistry>) -> Result<Store, StoreError> {
    let mut own = place.clone();
    let asks = place.flag(USE_PLUGIN_CONFIG_KEY)?;
    own.config.remove(USE_PLUGIN_CONFIG_KEY);
    let none = PluginRegistry::default();
    let registry = plugins.unwrap_or(&none);
    let foreign = !BUILT_IN.contains(&place.kind()) && registry.find(PluginKind::ObjectStore, &place.provider).is_ok();
    if asks == Some(true) || foreign {
        return plimsoll_plugin::open_store(registry, &own, Arc::new(TracingLogSink));
    }
    Store::open(&own)
}

/// The lines of plugins, as lines of an operation.
pub fn lines(heard: &Arc<Heard>) -> Arc<dyn LogSink> {
    Arc::new(OperationLogSink(Arc::clone(heard)))
}

/// Adds the plugins' actions of backups. What cannot be added is an error of the backup: an item it would have changed, or
/// something it would have added, is not as its user expects.
pub async fn add_backup_actions(
    context: &Context,
    actions: &mut BackupItemActions,
    blocks: &mut ItemBlockActions,
    selecting: &Selecting,
    heard: &Arc<Heard>,
) -> PluginActions {
    let plugins = PluginActions::for_backup(&context.plugins, &lines(heard));
    let mut problems = plugins.register_backup(actions, selecting.catalog()).await;
    problems.extend(plugins.register_blocks(blocks, selecting.catalog()).await);
    for problem in problems {
        heard.line(Level::Error, problem);
    }
    plugins
}

/// Adds the plugins' actions of restores.
pub async fn add_restore_actions(
    context: &Context,
    actions: &mut Actions,
    mapper: &(impl ResourceMapper + ?Sized),
    heard: &Arc<Heard>,
) -> PluginActions {
    let plugins = PluginActions::for_restore(&context.plugins, &lines(heard));
    for problem in plugins.register_restore(actions, mapper).await {
        heard.line(Level::Error, problem);
    }
    plugins
}

type DeleteActions = Registry<dyn DeleteItemAction>;

/// The actions of deletions, and what is wrong with those that cannot be asked. `moved` is there if the backup may have CSI
/// snapshots or data that was moved.
pub async fn delete_actions(
    context: &Arc<Context>,
    moved: Option<&Forgetting>,
    task: &Task,
) -> Result<(DeleteActions, PluginActions, Vec<String>), Error> {
    let mut actions = DeleteActions::default();
    let logs: Arc<dyn LogSink> = Arc::new(TracingLogSink);
    let plugins = PluginActions::for_deletion(&context.plugins, &logs);
    if plugins.delete().next().is_none() && moved.is_none() {
        return Ok((actions, plugins, Vec::new()));
    }
    let discovered = Patience::default().run(task, || context.cluster.discover()).await?;
    let selecting = Selecting::for_restore(&RestoreSpec::default(), None, &discovered.resources)?;
    if let Some(moved) = moved {
        csi::register_deletion(context, moved, &mut actions, selecting.catalog())?;
    }
    let problems = plugins.register_delete(&mut actions, selecting.catalog()).await;
    Ok((actions, plugins, problems))
}

/// What a server that died left going on in the background is ended: the actions are asked anew and begin anew.
pub async fn end_abandoned<A: ?Sized>(
    job_known: &[Known],
    actions: &Registry<A>,
    background: impl Fn(&Arc<A>) -> Option<Arc<dyn plimsoll_engine::operations::Background>>,
    subject: &Value,
    journal: &dyn plimsoll_engine::ports::Journal,
) -> Result<(), Error> {
    for known in job_known.iter().filter(|known| known.result.is_none()) {
        let plimsoll_engine::ports::Effect::Operation { action, id, .. } = &known.effect else { continue };
        match actions.get(action).and_then(&background) {
            Some(background) if background.is_found_again() => {}
            Some(background) => {
                if let Err(error) = background.cancel(id, subject).await {
                    tracing::warn!(
                        "operation {id} of {action}, begun by a server that is gone, may still go on: {error}"
                    );
                }
            }
            None => {
                tracing::warn!("operation {id}, begun by a server that is gone, may still go on: no plugin {action}");
            }
        }
        journal.settle(known.id, "abandoned".to_owned()).await?;
    }
    Ok(())
}

/// The counts of operations, as Backup and Restore have them.
pub fn counts(verb: &str, counts: OperationCounts) -> Value {
    let name = |word: &str| format!("{verb}ItemOperations{word}");
    json!({
        name("Attempted"): counts.attempted,
        name("Completed"): counts.completed,
        name("Failed"): counts.failed,
    })
}

/// Asks about the operations until each has ended, says so in the subject's phase, and keeps the file in the location up to date.
/// One whose user asks for the end is cancelled.
pub async fn follow_operations<K: subject::Kind>(
    job: &Job<K>,
    store: &Store,
    key: &str,
    subject: &Value,
    operations: &Operations,
    phase: &str,
    limit: Duration,
) -> Result<(), Error> {
    let owner = Owner { verb: K::VERB, name: &job.id.name, uid: &job.id.uid };
    let task = job.tree.root().child("operations");
    save_operations(store, key, operations, owner, &task).await?;
    kill::point("status.waiting.before");
    let mut status = counts(K::VERB, operations.counts());
    status["phase"] = json!(phase);
    job.write(&json!({ "status": status })).await?;
    kill::point("status.waiting.after");
    let saving = async {
        loop {
            tokio::time::sleep(SAVED_EVERY).await;
            if let Err(error) = save_operations(store, key, operations, owner, &task).await {
                break error;
            }
        }
    };
    let followed = tokio::select! {
        biased;
        () = job.cancel.cancelled() => Err(Error::Cancelled),
        followed = operations.follow(subject, &task, limit) => followed,
        error = saving => Err(error),
    };
    if matches!(followed, Err(Error::Cancelled)) {
        operations.cancel(subject).await;
    }
    followed?;
    for failure in operations.failures() {
        tracing::warn!("{} {}: {failure}", K::VERB, job.id.name);
    }
    task.finish();
    save_operations(store, key, operations, owner, &job.tree.root()).await
}

/// Writes what is known of the operations beside the other files.
pub async fn save_operations(
    store: &Store,
    key: &str,
    operations: &Operations,
    owner: Owner<'_>,
    task: &Task,
) -> Result<(), Error> {
    let packed = plimsoll_archive::codec::gzip_json(&operations.list(owner))
        .map_err(|source| Error::Archive { name: key.to_owned(), source })?;
    let packed = bytes::Bytes::from(packed);
    Patience::default().run(task, || async { Ok(store.put(key, packed.clone()).await?) }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_that_asks_for_a_plugin_does_not_get_anything_else() {
        let mut place = Location { provider: "aws".into(), bucket: "b".into(), ..Location::default() };
        place.config.insert("region".into(), "here".into());
        assert!(open_store(&place, None).is_ok());
        place.config.insert(USE_PLUGIN_CONFIG_KEY.into(), "false".into());
        assert!(open_store(&place, None).is_ok(), "a setting of ours is no unknown one");
        place.config.insert(USE_PLUGIN_CONFIG_KEY.into(), "true".into());
        let refused = open_store(&place, Some(&PluginRegistry::default())).unwrap_err().to_string();
        assert!(refused.contains("ObjectStore plugin \"velero.io/aws\" not found"), "{refused}");
    }
}
