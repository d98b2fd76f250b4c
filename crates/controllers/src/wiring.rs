//! Gives each controller what it needs, and runs all of them.

use std::sync::Arc;

use plimsoll_operations::lifecycle::run_lifecycle;
use plimsoll_operations::{
    ActiveOperations, LeaderClient, LiveProgress, OperationRuntime, WRITE_INTERVAL, WriteBudget,
};
use plimsoll_plugin::PluginRegistry;
use plimsoll_volumes::exposer::{Exposer, run_exposer};
use plimsoll_volumes::fs_backup::TransferServices;
use plimsoll_volumes::repositories::{Repositories, run_backup_repository_controller};
use plimsoll_volumes::snapshotter::SnapshotServices;
use plimsoll_volumes::storage_location::StorageLocations;
use tokio::sync::Mutex;
use tracing::warn;

use crate::action_set::{ActionSetContext, ActionSetController};
use crate::backup::BackupController;
use crate::backup::garbage_collection::{self, GarbageCollectionContext};
use crate::backup::verification::{self, VerificationContext};
use crate::backup_storage_location::{self, StorageLocationContext};
use crate::blueprint;
use crate::context::Context;
use crate::delete_backup_request::{self, DeleteBackupRequestController};
use crate::disabled::{DisableableController, DisabledControllers};
use crate::download_request::{self, DownloadRequestContext};
use crate::restore::RestoreController;
use crate::restore::files::{self, RestoreFilesContext};
use crate::schedule::{self, ScheduleContext};
use crate::server_status_request::{self, ServerStatusContext};
use crate::settings::Settings;
use crate::sync_warnings::SyncWarnings;

/// The controllers of the leader, each with its own context.
pub struct Controllers {
    disabled: DisabledControllers,
    runtime: Arc<OperationRuntime>,
    backups: Arc<Context>,
    action_sets: Arc<ActionSetContext>,
    locations: Arc<StorageLocationContext>,
    schedules: Arc<ScheduleContext>,
    garbage_collection: Arc<GarbageCollectionContext>,
    verification: Arc<VerificationContext>,
    restore_files: Arc<RestoreFilesContext>,
    downloads: Arc<DownloadRequestContext>,
    server_status: Arc<ServerStatusContext>,
    repositories: Arc<Repositories>,
    exposer: Arc<Exposer>,
}

impl Controllers {
    /// `download_base` is what comes before the path in a link to a directory's object.
    pub fn new(
        leader: &LeaderClient,
        settings: Settings,
        plugins: PluginRegistry,
        download_base: Option<String>,
    ) -> Self {
        let leader = || leader.clone();
        let runtime = Arc::new(OperationRuntime {
            leader: leader(),
            active: ActiveOperations::default(),
            write_budget: WriteBudget::start(|| WRITE_INTERVAL),
            scratch: settings.scratch.clone(),
            trees: settings.trees.clone(),
        });
        let storage = Arc::new(
            StorageLocations::new(leader().client, &settings.namespace, settings.store_idle, plugins.clone())
                .with_default(&settings.defaults.storage_location),
        );
        let adopt = settings.adopt_default_repository_password;
        let repositories = Arc::new(Repositories::new(Arc::clone(&runtime), Arc::clone(&storage), adopt));
        let transfers = Arc::new(TransferServices {
            leader: leader(),
            repositories: Arc::clone(&repositories),
            mover: settings.mover,
            resource_timeout: settings.resource_timeout,
            agent_heartbeat_timeout: settings.agent_heartbeat_timeout,
            agent_trees: settings.transfers.clone(),
        });
        Self {
            disabled: settings.disabled.clone(),
            exposer: Arc::new(Exposer {
                leader: leader(),
                restore_helper: settings.restore_helper.clone(),
                config: settings.node_agent_config.clone(),
                accepting: Mutex::default(),
            }),
            action_sets: Arc::new(ActionSetContext {
                leader: leader(),
                transfers: Arc::clone(&transfers),
                fs_backup_timeout: settings.fs_backup_timeout,
                service_account: settings.service_account.clone(),
                tools: settings.tools.clone(),
            }),
            locations: Arc::new(StorageLocationContext {
                leader: leader(),
                storage: Arc::clone(&storage),
                sync_warnings: SyncWarnings::default(),
                sync_period: settings.backup_sync_period,
                check_interval: settings.store_validation_frequency,
            }),
            schedules: Arc::new(ScheduleContext {
                leader: leader(),
                skip_immediately: settings.schedule_skip_immediately,
            }),
            garbage_collection: Arc::new(GarbageCollectionContext {
                leader: leader(),
                frequency: settings.garbage_collection_frequency,
            }),
            verification: Arc::new(VerificationContext {
                leader: leader(),
                runtime: Arc::clone(&runtime),
                storage: Arc::clone(&storage),
                repositories: Arc::clone(&repositories),
                turn: Mutex::default(),
            }),
            restore_files: Arc::new(RestoreFilesContext {
                leader: leader(),
                runtime: Arc::clone(&runtime),
                storage: Arc::clone(&storage),
            }),
            downloads: Arc::new(DownloadRequestContext {
                leader: leader(),
                storage: Arc::clone(&storage),
                live: LiveProgress::default(),
                download_base,
            }),
            server_status: Arc::new(ServerStatusContext { leader: leader(), plugins: plugins.clone() }),
            backups: Arc::new(Context {
                leader: leader(),
                runtime: Arc::clone(&runtime),
                snapshots: Arc::new(SnapshotServices {
                    leader: leader(),
                    storage: Arc::clone(&storage),
                    defaults: settings.defaults.volume_snapshot_locations.clone(),
                }),
                settings,
                storage,
                repositories: Arc::clone(&repositories),
                transfers,
                plugins,
            }),
            runtime,
            repositories,
        }
    }

    /// Runs them until the future is dropped.
    pub async fn run(self) {
        use DisableableController as C;
        let disabled = self.disabled;
        for controller in &disabled {
            warn!("controller {controller:?} is disabled");
        }
        let (runtime, backups) = (|| Arc::clone(&self.runtime), || Arc::clone(&self.backups));
        tokio::join!(
            backup_storage_location::control(Arc::clone(&self.locations)),
            run_unless_disabled(&disabled, C::Backup, run_lifecycle::<BackupController>(runtime(), backups())),
            run_unless_disabled(&disabled, C::Restore, run_lifecycle::<RestoreController>(runtime(), backups())),
            run_unless_disabled(
                &disabled,
                C::BackupDeletion,
                run_lifecycle::<DeleteBackupRequestController>(runtime(), backups())
            ),
            run_lifecycle::<ActionSetController>(runtime(), self.action_sets),
            blueprint::control(Arc::new(self.runtime.leader.clone())),
            run_unless_disabled(&disabled, C::BackupDeletion, delete_backup_request::cleanup::control(runtime())),
            verification::control(self.verification),
            files::control(self.restore_files),
            run_unless_disabled(&disabled, C::GarbageCollection, garbage_collection::control(self.garbage_collection)),
            run_unless_disabled(&disabled, C::BackupSync, backup_storage_location::sync::control(self.locations)),
            run_unless_disabled(&disabled, C::Schedule, schedule::control(self.schedules)),
            run_unless_disabled(&disabled, C::BackupRepository, run_backup_repository_controller(self.repositories)),
            run_unless_disabled(&disabled, C::ServerStatusRequest, server_status_request::control(self.server_status)),
            run_unless_disabled(&disabled, C::DownloadRequest, download_request::control(self.downloads)),
            run_exposer(self.exposer),
        );
    }
}

/// Runs a controller unless it is disabled.
async fn run_unless_disabled(
    disabled: &DisabledControllers,
    controller: DisableableController,
    running: impl Future<Output = ()>,
) {
    if !disabled.contains(&controller) {
        running.await;
    }
}
