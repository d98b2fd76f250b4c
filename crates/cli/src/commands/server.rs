//! `plimsoll server`.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use kube::Client;
use plimsoll_api::labels;
use plimsoll_controllers::{
    Defaults, DisabledControllers, DownloadSettings, PluginSettings, RESTORE_ONLY, Server, Settings, ToolsImage,
};
use plimsoll_progress::Trees;
use plimsoll_progress_stream::{AgentDiscovery, follow_agents};
use plimsoll_volumes::NodeAgentConfig;
use plimsoll_volumes::fs_backup::RestoreHelper;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::args::server_defaults::ServerDefaults;
use crate::args::{self, Global};
use crate::connect;
use crate::exit::Outcome;
use crate::request_rate::with_request_rate;

/// Runs until a signal, or until another server leads.
pub async fn run(global: &Global, options: args::Server) -> anyhow::Result<Outcome> {
    let client = connect::service_client(global).await?;
    let client = with_request_rate(client, options.defaults.client_qps, options.defaults.client_burst);
    let mut settings = settings(global, &options);
    if let Some(name) = &options.defaults.node_agent_configmap {
        let read = NodeAgentConfig::read(&client, &global.namespace, name).await;
        settings.node_agent_config = read.context("invalid --node-agent-configmap")?;
    }
    let (trees, transfers) = (settings.trees.clone(), settings.transfers.clone());
    let copies = transfers.clone();
    let agents = AgentDiscovery {
        client: client.clone(),
        namespace: global.namespace.clone(),
        address_annotation: labels::PROGRESS_ADDRESS,
    };
    let following = follow_agents(agents, trees.clone(), copies);
    let _following = AbortOnDropHandle::new(tokio::spawn(following));
    let _dashboard =
        super::ui::serve_with_server(&client, &global.namespace, &options.dashboard, trees, transfers).await?;
    Box::pin(serve(client, settings, stop_on_signal()?)).await?;
    Ok(Outcome::Success)
}

/// Runs a server with these settings.
pub async fn serve(client: Client, settings: Settings, stop: CancellationToken) -> anyhow::Result<()> {
    Box::pin(Server::new(client, settings).run(stop)).await.context("the server ended")
}

/// From what was typed.
pub fn settings(global: &Global, options: &args::Server) -> Settings {
    let scratch = options.scratch_dir.clone().unwrap_or_else(|| std::env::temp_dir().join("plimsoll"));
    Settings {
        namespace: global.namespace.clone(),
        scratch,
        lease_term: options.lease_duration.max(Duration::from_secs(1)),
        concurrency: options.concurrency.into(),
        default_ttl: options.default_backup_ttl,
        store_idle: options.store_idle_timeout,
        resource_timeout: options.resource_timeout,
        terminating_timeout: options.terminating_resource_timeout,
        backup_sync_period: options.backup_sync_period,
        store_validation_frequency: options.defaults.store_validation_frequency,
        client_page_size: options.defaults.client_page_size,
        item_workers: options.defaults.item_block_worker_count.into(),
        defaults: defaults(&options.defaults),
        disabled: disabled(&options.defaults),
        garbage_collection_frequency: options.garbage_collection_frequency.max(Duration::from_secs(1)),
        schedule_skip_immediately: options.schedule_skip_immediately,
        mover: options.volumes.uploader_type,
        default_volumes_to_fs_backup: options.volumes.default_volumes_to_fs_backup,
        adopt_default_repository_password: options.volumes.adopt_default_repository_password,
        fs_backup_timeout: options.volumes.fs_backup_timeout,
        agent_heartbeat_timeout: options.volumes.agent_heartbeat_timeout,
        restore_helper: RestoreHelper {
            image: options.volumes.restore_helper_image.clone(),
            command: vec![options.volumes.restore_helper_program.clone(), "restore-wait".into()],
        },
        node_agent_config: NodeAgentConfig::default(),
        identity: identity(),
        pod: variable("POD_NAME"),
        // Where it serves another namespace than its own, that one does not have its account.
        service_account: variable("POD_SERVICE_ACCOUNT")
            .filter(|_| variable("POD_NAMESPACE").as_ref() == Some(&global.namespace)),
        plugins: PluginSettings {
            directory: Some(options.plugin_dir.clone()),
            environment: options.plugin_env.clone(),
            guard: guard(),
        },
        downloads: options.download_address.map(|address| DownloadSettings {
            address,
            url: options.download_url.clone(),
            tls: options.download_tls_cert.clone().zip(options.download_tls_key.clone()),
        }),
        tools: options.tools_image.clone().map(tools),
        trees: Trees::default(),
        transfers: Trees::default(),
    }
}

fn defaults(options: &ServerDefaults) -> Defaults {
    Defaults {
        snapshot_move_data: options.default_snapshot_move_data,
        item_operation_timeout: options.default_item_operation_timeout,
        storage_location: options.default_backup_storage_location.clone(),
        volume_snapshot_locations: options.default_volume_snapshot_locations.iter().cloned().collect(),
        restore_priorities: options.restore_resource_priorities.clone(),
        volume_policies: options.global_backup_volume_policies_configmap.clone(),
        resource_modifier: options.default_resource_modifier_configmap.clone(),
    }
}

fn disabled(options: &ServerDefaults) -> DisabledControllers {
    let restore_only = RESTORE_ONLY.into_iter().filter(|_| options.restore_only);
    options.disable_controllers.iter().copied().chain(restore_only).collect()
}

/// The settings of the server inside `plimsoll local`.
pub fn local_settings(global: &Global, scratch: PathBuf) -> Settings {
    // Images are only names there, and programs are this machine's.
    let restore_helper =
        RestoreHelper { image: "plimsoll".into(), command: vec![this_program(), "restore-wait".into()] };
    Settings {
        lease_term: Duration::from_secs(3),
        plugins: PluginSettings {
            directory: std::env::var_os("PLIMSOLL_PLUGIN_DIR").map(PathBuf::from),
            guard: guard(),
            ..PluginSettings::default()
        },
        downloads: Some(DownloadSettings { address: (Ipv4Addr::LOCALHOST, 0).into(), url: None, tls: None }),
        tools: Some(tools("plimsoll".into())),
        ..Settings::new(&global.namespace, scratch, identity(), restore_helper)
    }
}

/// An environment variable that the definition of the pod sets.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn this_program() -> String {
    std::env::current_exe().map_or_else(|_| "plimsoll".into(), |path| path.display().to_string())
}

/// This very program, in an image that has it at the same place.
fn tools(image: String) -> ToolsImage {
    let program = std::env::current_exe().unwrap_or_else(|_| "/plimsoll".into());
    ToolsImage { image, program: program.display().to_string() }
}

/// Starts a program so that it dies with this process.
fn guard() -> Vec<OsString> {
    std::env::current_exe().map(|this| vec![this.into(), "mover".into()]).unwrap_or_default()
}

/// The machine and something that no other process has.
pub fn identity() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()).unwrap_or(host);
    format!("{}_{}", host.trim(), uuid::Uuid::new_v4())
}

/// Cancelled by Ctrl-C and by SIGTERM.
pub fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stopped = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stopped.cancel();
    });
    Ok(stop)
}
