//! Plugins at work: found when the server starts, one process for each binary and operation.

use std::sync::Arc;

use plimsoll_api::velero::v1::RestoreSpec;
use plimsoll_engine::backup::PlannedBackup;
use plimsoll_engine::delete::DeleteItemActions;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::log::Level;
use plimsoll_engine::restore::actions::Actions;
use plimsoll_engine::{Error, PluginLogSink, RetryPolicy};
use plimsoll_plugin::{
    Environment, LaunchConfig, LogSink, OperationLogSink, PluginActions, PluginRegistry, TracingLogSink,
};
use plimsoll_progress::Task;
use plimsoll_select::resources::ResourceMapper;
use plimsoll_volumes::csi::{self, MovedSnapshots};

use crate::context::Context;
use crate::settings::Settings;

/// Lists the plugins of every binary in the plugin directory.
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

/// The lines of plugins, as lines of an operation.
pub fn lines(plugin_log: &Arc<PluginLogSink>) -> Arc<dyn LogSink> {
    Arc::new(OperationLogSink(Arc::clone(plugin_log)))
}

/// Adds the plugins' actions of backups. What cannot be added is an error of the backup: an item it would have changed, or
/// something it would have added, is not as its user expects.
pub async fn add_backup_actions(
    context: &Context,
    planned: &mut PlannedBackup,
    plugin_log: &Arc<PluginLogSink>,
) -> PluginActions {
    let plugins = PluginActions::for_backup(&context.plugins, &lines(plugin_log));
    let catalog = planned.item_filter.catalog();
    let mut problems = plugins.register_backup(&mut planned.actions, catalog).await;
    problems.extend(plugins.register_blocks(&mut planned.blocks, catalog).await);
    for problem in problems {
        plugin_log.line(Level::Error, problem);
    }
    plugins
}

/// Adds the plugins' actions of restores.
pub async fn add_restore_actions(
    context: &Context,
    actions: &mut Actions,
    mapper: &(impl ResourceMapper + ?Sized),
    plugin_log: &Arc<PluginLogSink>,
) -> PluginActions {
    let plugins = PluginActions::for_restore(&context.plugins, &lines(plugin_log));
    for problem in plugins.register_restore(actions, mapper).await {
        plugin_log.line(Level::Error, problem);
    }
    plugins
}

/// The actions of deletions, and the errors of those that cannot be called. `moved` is there if the backup may have CSI
/// snapshots or data that was moved.
pub async fn delete_actions(
    context: &Arc<Context>,
    moved: Option<&MovedSnapshots>,
    task: &Task,
) -> Result<(DeleteItemActions, PluginActions, Vec<String>), Error> {
    let mut actions = DeleteItemActions::default();
    let logs: Arc<dyn LogSink> = Arc::new(TracingLogSink);
    let plugins = PluginActions::for_deletion(&context.plugins, &logs);
    if plugins.delete().next().is_none() && moved.is_none() {
        return Ok((actions, plugins, Vec::new()));
    }
    let discovered = RetryPolicy::default().run(task, || context.leader.cluster.discover()).await?;
    let item_filter = ItemFilter::for_restore(&RestoreSpec::default(), None, &discovered.resources)?;
    if let Some(moved) = moved {
        csi::register_deletion(&context.leader, moved, &mut actions, item_filter.catalog())?;
    }
    let problems = plugins.register_delete(&mut actions, item_filter.catalog()).await;
    Ok((actions, plugins, problems))
}
