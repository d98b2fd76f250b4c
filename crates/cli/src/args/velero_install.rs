//! Flags of `velero install` that are flags of the server here, so that an existing command works unchanged.

use clap::Args;

/// Flags for Velero's server. Hidden: the server's own are passed with `--server-argument`.
#[derive(Clone, Debug, Default, Args)]
pub struct VeleroServerFlags {
    #[arg(long, value_name = "NAME", hide = true)]
    pub backup_repository_configmap: Option<String>,
    #[arg(long, value_name = "N", hide = true)]
    pub concurrent_backups: Option<String>,
    #[arg(long, value_name = "DURATION", hide = true)]
    pub default_repo_maintain_frequency: Option<String>,
    #[arg(long, value_name = "NAME", hide = true)]
    pub default_resource_modifier_configmap: Option<String>,
    #[arg(long, value_name = "BOOL", hide = true, num_args = 0..=1, default_missing_value = "true")]
    pub default_snapshot_move_data: Option<bool>,
    #[arg(long, value_name = "BOOL", hide = true, num_args = 0..=1, default_missing_value = "true")]
    pub disable_informer_cache: Option<bool>,
    #[arg(long, value_name = "NAMES", hide = true)]
    pub features: Option<String>,
    #[arg(long, value_name = "DURATION", hide = true)]
    pub garbage_collection_frequency: Option<String>,
    #[arg(long, value_name = "NAME", hide = true)]
    pub global_backup_volume_policies_configmap: Option<String>,
    #[arg(long, value_name = "N", hide = true)]
    pub item_block_worker_count: Option<String>,
    #[arg(long, value_name = "N", hide = true)]
    pub keep_latest_maintenance_jobs: Option<String>,
    #[arg(long, value_name = "QUANTITY", hide = true)]
    pub maintenance_job_cpu_limit: Option<String>,
    #[arg(long, value_name = "QUANTITY", hide = true)]
    pub maintenance_job_cpu_request: Option<String>,
    #[arg(long, value_name = "QUANTITY", hide = true)]
    pub maintenance_job_mem_limit: Option<String>,
    #[arg(long, value_name = "QUANTITY", hide = true)]
    pub maintenance_job_mem_request: Option<String>,
    #[arg(long, value_name = "NAME", hide = true)]
    pub repo_maintenance_job_configmap: Option<String>,
    #[arg(long, value_name = "BOOL", hide = true, num_args = 0..=1, default_missing_value = "true")]
    pub restore_only: Option<bool>,
    #[arg(long, value_name = "BOOL", hide = true, num_args = 0..=1, default_missing_value = "true")]
    pub schedule_skip_immediately: Option<bool>,
}

impl VeleroServerFlags {
    /// The arguments that `velero install` writes into the Deployment for them.
    pub fn arguments(&self) -> Vec<String> {
        let texts = [
            ("backup-repository-configmap", &self.backup_repository_configmap),
            ("concurrent-backups", &self.concurrent_backups),
            ("default-repo-maintain-frequency", &self.default_repo_maintain_frequency),
            ("default-resource-modifier-configmap", &self.default_resource_modifier_configmap),
            ("features", &self.features),
            ("garbage-collection-frequency", &self.garbage_collection_frequency),
            ("global-backup-volume-policies-configmap", &self.global_backup_volume_policies_configmap),
            ("item-block-worker-count", &self.item_block_worker_count),
            ("keep-latest-maintenance-jobs", &self.keep_latest_maintenance_jobs),
            ("maintenance-job-cpu-limit", &self.maintenance_job_cpu_limit),
            ("maintenance-job-cpu-request", &self.maintenance_job_cpu_request),
            ("maintenance-job-mem-limit", &self.maintenance_job_mem_limit),
            ("maintenance-job-mem-request", &self.maintenance_job_mem_request),
            ("repo-maintenance-job-configmap", &self.repo_maintenance_job_configmap),
        ];
        let switches = [
            ("default-snapshot-move-data", self.default_snapshot_move_data),
            ("disable-informer-cache", self.disable_informer_cache),
            ("restore-only", self.restore_only),
            ("schedule-skip-immediately", self.schedule_skip_immediately),
        ];
        let texts = texts.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?)));
        // A switch that is off is the default.
        let switches = switches.into_iter().filter(|(_, on)| *on == Some(true)).map(|(name, _)| format!("--{name}"));
        texts.chain(switches).collect()
    }
}
