//! `plimsoll version`.

use std::time::Duration;

use anyhow::bail;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::velero::v1::{RequestPhase, ServerStatusRequest, ServerStatusRequestStatus};
use plimsoll_progress::{Clock, Operation};

use crate::args::{Global, Version};
use crate::exit::Outcome;
use crate::progress_display::ProgressDisplay;
use crate::{connect, output};

/// Prints the versions of this program and of the server.
pub async fn run(global: &Global, options: &Version) -> anyhow::Result<Outcome> {
    output::line(format!("Client:\n  Version:  v{}", env!("CARGO_PKG_VERSION")));
    if options.client_only {
        return Ok(Outcome::Success);
    }
    let client = connect::client(global).await?;
    let status = server(&client, &global.namespace, options.timeout).await?;
    output::line(format!("Server:\n  Version:  {}", status.server_version.unwrap_or_default()));
    for plugin in &status.plugins {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        output::line(format!("  Plugin:   {} ({})", text(&plugin.name), text(&plugin.kind)));
    }
    Ok(Outcome::Success)
}

/// Requests the status of the server.
pub(super) async fn server(
    client: &Client,
    namespace: &str,
    timeout: Duration,
) -> anyhow::Result<ServerStatusRequestStatus> {
    let api: Api<ServerStatusRequest> = Api::namespaced(client.clone(), namespace);
    let metadata = ObjectMeta { generate_name: Some("plimsoll-cli-".into()), ..ObjectMeta::default() };
    let request = ServerStatusRequest { metadata, ..ServerStatusRequest::default() };
    let name = api.create(&PostParams::default(), &request).await?.name_any();
    let processed = |request: Option<&ServerStatusRequest>| {
        let phase = request.and_then(|request| request.status.as_ref()?.phase.clone());
        phase == Some(RequestPhase::Processed)
    };
    let operation = Operation::new("server status", Clock::system());
    let _waiting = operation.root().wait("waiting for the answer of the server");
    let answer = tokio::time::timeout(timeout, await_condition(api.clone(), &name, processed));
    let answer = ProgressDisplay::on_terminal_only().show_while(&operation, answer).await;
    let _ = api.delete(&name, &DeleteParams::default()).await;
    let Ok(answer) = answer else {
        let limit = timeout.as_secs_f64();
        bail!(
            "no server answered in namespace {namespace} within {limit}s; see why with `kubectl get pods -n {namespace}`"
        )
    };
    Ok(answer?.and_then(|request| request.status).unwrap_or_default())
}
