//! `plimsoll ui`, and the dashboard of the server.

use std::io::{IsTerminal, Write};
use std::process::Stdio;

use anyhow::{Context, ensure};
use jiff::Timestamp;
use kube::Client;
use plimsoll_controllers::cron::Cron;
use plimsoll_progress::Trees;
use plimsoll_progress_stream::{AccessToken, LeaderClient, TokenSource};
use plimsoll_serve::{Dashboard, DashboardSettings, RunningDashboard};

use super::server::stop_on_signal;
use crate::args::Global;
use crate::args::dashboard::{self, Ui};
use crate::exit::Outcome;
use crate::{connect, output};

/// Serves the dashboard on this machine until Ctrl-C.
pub async fn run(global: &Global, options: Ui) -> anyhow::Result<Outcome> {
    ensure!(
        options.listen.ip().is_loopback(),
        "{} is not a loopback address; the dashboard is not encrypted",
        options.listen
    );
    let stop = stop_on_signal()?;
    let client = connect::client(global).await?;
    let leader = if options.direct {
        None
    } else {
        LeaderClient::find(&client, &global.namespace, token_from_environment()).await
    };
    let source = match &leader {
        Some(_) => "served by the Plimsoll server",
        None => "read with this kubeconfig",
    };
    let token = AccessToken::generate();
    let settings = DashboardSettings {
        address: options.listen,
        token: token.clone().into(),
        open_metrics: false,
        allow_changes: options.allow_changes,
        namespace: global.namespace.clone(),
        next_run,
    };
    let mut dashboard = Dashboard::new(client, settings);
    if let Some(leader) = leader {
        dashboard = dashboard.with_leader(leader);
    }
    let listening = dashboard.listen().await?;
    let url = format!("http://{}/#token={}", listening.address, token.reveal());
    output::line(format!("dashboard of namespace {}, {source}:", global.namespace));
    output::line(&url);
    let _page = if options.no_open || !std::io::stdout().is_terminal() { None } else { open(&url) };
    stop.cancelled().await;
    Ok(Outcome::Success)
}

/// The token, for a user who may not read the Secret of the server.
pub fn token_from_environment() -> Option<AccessToken> {
    std::env::var("PLIMSOLL_DASHBOARD_TOKEN").ok().filter(|token| !token.is_empty()).map(AccessToken::new)
}

/// Opens a browser. The URL goes into a file that only this user may read, because every user sees the arguments of processes.
fn open(url: &str) -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().ok()?;
    let path = directory.path().join("plimsoll.html");
    let mut file = std::fs::File::create(&path).ok()?;
    write!(file, "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={url}\"><a href=\"{url}\">Plimsoll</a>")
        .ok()?;
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let quiet = || Stdio::null();
    let opened = std::process::Command::new(program).arg(&path).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
    opened.is_ok().then_some(directory)
}

/// Serves the dashboard of a server, if it has an address.
pub async fn serve_with_server(
    client: &Client,
    namespace: &str,
    options: &dashboard::Dashboard,
    trees: Trees,
    transfers: Trees,
) -> anyhow::Result<Option<RunningDashboard>> {
    let Some(address) = options.address else { return Ok(None) };
    let token = TokenSource::create_secret(client, namespace).await.context("cannot start the dashboard")?;
    let settings = DashboardSettings {
        address,
        token,
        open_metrics: !options.metrics_need_token,
        allow_changes: options.allow_changes,
        namespace: namespace.to_owned(),
        next_run,
    };
    let dashboard = Dashboard::new(client.clone(), settings).with_trees(trees).with_transfer_trees(transfers);
    let listening = dashboard.listen().await?;
    tracing::info!("serving the dashboard and metrics on {}", listening.address);
    Ok(Some(listening))
}

/// The next run of a schedule.
fn next_run(cron: &str, after: Timestamp) -> Option<Timestamp> {
    cron.parse::<Cron>().ok()?.next(after)
}
