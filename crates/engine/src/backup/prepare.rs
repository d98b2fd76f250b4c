//! The preparation of a backup: its plan, its item actions and its volumes.

use std::sync::Arc;

use plimsoll_progress::Task;

use super::actions::{BackupItemAction, ItemBlockActions, built_in};
use super::plan::plan;
use super::state::{BackupRun, PlannedBackup};
use crate::hooks::HookRules;
use crate::item_filter::ItemFilter;
use crate::item_operations::cancel_abandoned;
use crate::{Error, RetryPolicy, unless_cancelled};

impl BackupRun<'_> {
    /// Plans the backup, and cancels the item operations that an earlier attempt left running.
    pub(super) async fn prepare(&self) -> Result<PlannedBackup, Error> {
        let planning = self.state.stages.start("planning");
        let planned = unless_cancelled(&self.env.operation.cancel, Box::pin(self.plan(&planning))).await?;
        let operation_client = |action: &Arc<dyn BackupItemAction>| Arc::clone(action).operation_client();
        let (entries, journal) = (&self.input.journal_entries, self.env.operation.journal.as_ref());
        cancel_abandoned(entries, &planned.actions, operation_client, &self.state.backup, journal).await?;
        planning.finish();
        Ok(planned)
    }

    async fn plan(&self, planning: &Task) -> Result<PlannedBackup, Error> {
        let (spec, cluster) = (&self.input.spec, &self.env.operation.cluster);
        let read_policies = || self.env.object.resource_policies();
        let policies = RetryPolicy::default().run(&self.env.operation.root, read_policies).await?;
        let (plan, item_filter) = plan(
            cluster,
            |resources, namespaces| ItemFilter::for_backup(spec, policies.as_ref(), resources, namespaces),
            planning,
        )
        .await?;
        let actions = RetryPolicy::default().run(planning, || built_in(cluster, item_filter.catalog())).await?;
        let mut planned = PlannedBackup {
            plan,
            hooks: HookRules::compile(spec.hooks.as_ref(), item_filter.catalog())?,
            item_filter: Arc::new(item_filter),
            policies,
            actions,
            blocks: ItemBlockActions::default(),
            volumes: None,
        };
        self.env.extensions.prepare(&mut planned, &self.state).await?;
        Ok(planned)
    }
}
