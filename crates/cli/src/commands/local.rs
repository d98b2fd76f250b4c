//! `plimsoll local`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use plimsoll_agent::AgentSettings;
use plimsoll_api::velero::v1::{BackupStorageLocation, BackupStorageLocationSpec, ObjectStorageLocation};
use plimsoll_mover::MoverCommand;
use tokio_util::sync::CancellationToken;

use super::{agent, server};
use crate::args::agent::DEFAULT_CACHE_LIMIT;
use crate::args::values::bytes;
use crate::args::{Global, Local};
use crate::exit::Outcome;
use crate::{connect, errors, output};

/// Runs the API until a signal.
pub async fn run(global: &Global, options: Local) -> anyhow::Result<Outcome> {
    ensure!(
        options.listen.ip().is_loopback(),
        "{} is not a loopback address; the local cluster has no isolation",
        options.listen
    );
    let stop = server::stop_on_signal()?;
    std::fs::create_dir_all(&options.data_dir)
        .with_context(|| format!("cannot create directory {}", options.data_dir.display()))?;
    let directory = options.data_dir.canonicalize()?;
    let api = plimsoll_local::Api::open(&directory).await.context("cannot open the local cluster")?;
    let client = api.client(&global.namespace);
    prepare(&client, &global.namespace, &directory).await?;
    let served = api.serve(options.listen, &directory).await.context("cannot listen")?;
    output::line(format!("listening on https://{}", served.address()));
    output::line(format!("export KUBECONFIG={}", served.kubeconfig_path().display()));
    if options.run_pods {
        let environment = vec![("KUBECONFIG".to_owned(), served.kubeconfig_path().display().to_string())];
        api.run_pods(&directory, environment).await?;
        tracing::warn!(
            "pods run as processes of this machine with the permissions of this user; there is no isolation"
        );
        output::line("pods run as processes of this machine with the permissions of this user");
    }
    if options.no_server {
        stop.cancelled().await;
    } else {
        output::line("try: plimsoll backup create first --wait");
        let settings = server::local_settings(global, directory.join("scratch"));
        if options.run_pods {
            run_agent(client.clone(), agent_settings(global, &directory)?, stop.clone());
        }
        // Commands in pods upgrade their connection, which the in-process client has not.
        let outside = Global { kubeconfig: Some(served.kubeconfig_path().to_owned()), context: None, ..global.clone() };
        let client = if options.run_pods { connect::service_client(&outside).await? } else { client };
        Box::pin(server::serve(client, settings, stop)).await?;
    }
    served.shutdown().await;
    api.close().await;
    Ok(Outcome::Success)
}

/// The agent of the one node there is.
fn agent_settings(global: &Global, directory: &Path) -> anyhow::Result<AgentSettings> {
    Ok(AgentSettings {
        namespace: global.namespace.clone(),
        node: plimsoll_local::NODE_NAME.to_owned(),
        // Only one process has the directory open, so the last holder of the Lease has ended.
        identity: format!("{}-agent", plimsoll_local::NODE_NAME),
        pods_directory: directory.join("pods"),
        concurrency: 4,
        memory: None,
        progress_interval: Duration::from_secs(1),
        cache: Some(directory.join("cache")),
        cache_limit: bytes(DEFAULT_CACHE_LIMIT).map_err(anyhow::Error::msg)?,
        launch: MoverCommand::this_program()?,
        restic: None,
        kopia: None,
        trees: plimsoll_progress::Trees::default(),
        progress_address: None,
    })
}

fn run_agent(client: Client, settings: AgentSettings, stop: CancellationToken) {
    tokio::spawn(async move {
        if let Err(error) = agent::serve(client, settings, stop).await {
            tracing::error!("{}", errors::cause_text(&error));
        }
    });
}

/// Creates the definitions, the namespace and the default location. Idempotent.
async fn prepare(client: &Client, namespace: &str, directory: &Path) -> anyhow::Result<()> {
    plimsoll_controllers::install_crds(client.clone())
        .await
        .context("cannot install the custom resource definitions")?;
    for name in ["default", namespace] {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let object = Namespace { metadata, ..Namespace::default() };
        create_once(&Api::all(client.clone()), &object).await?;
    }
    let backups = directory.join("backups");
    std::fs::create_dir_all(&backups)?;
    let spec = BackupStorageLocationSpec {
        provider: Some("directory".into()),
        default: Some(true),
        object_storage: Some(ObjectStorageLocation {
            bucket: Some(backups.display().to_string()),
            ..ObjectStorageLocation::default()
        }),
        ..BackupStorageLocationSpec::default()
    };
    let metadata =
        ObjectMeta { name: Some("default".into()), namespace: Some(namespace.into()), ..ObjectMeta::default() };
    let location = BackupStorageLocation { metadata, spec, status: None };
    create_once(&Api::namespaced(client.clone(), namespace), &location).await
}

async fn create_once<K>(api: &Api<K>, object: &K) -> anyhow::Result<()>
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error).context("cannot prepare the local cluster"),
    }
}
