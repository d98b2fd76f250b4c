//! Actions that send requests: fetching a log, cancelling. They run in the background.

use std::sync::mpsc;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, LogParams, Patch, PatchParams};
use kube::{Api, Client};
use plimsoll_observe::{Kind, Reference};
use serde_json::json;

use super::app::{App, Prompt, UserAction, View};
use crate::args::names;
use crate::commands::{action, logs};
use crate::errors;

/// The number of lines of a log that are fetched.
const MAX_LOG_LINES: i64 = 2000;

enum ActionResult {
    Log(String),
    Message(String),
}

pub struct ActionRunner {
    client: Client,
    sender: mpsc::Sender<ActionResult>,
    receiver: mpsc::Receiver<ActionResult>,
}

impl ActionRunner {
    pub fn new(client: Client) -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { client, sender, receiver }
    }

    /// Starts an action in the background.
    pub fn start(&self, action: UserAction, app: &App) {
        let (client, sender) = (self.client.clone(), self.sender.clone());
        let operation = |reference: &Reference| {
            app.operations.iter().find(|(subject, _)| subject == reference).map(|(_, name)| name.clone())
        };
        match action {
            UserAction::Log(reference) => {
                let (operation, server) = (operation(&reference), app.server_pod.clone());
                tokio::spawn(async move {
                    let text = log(&client, &reference, operation, server).await;
                    let _ = sender.send(ActionResult::Log(
                        text.unwrap_or_else(|error| format!("no log: {}", errors::cause_text(&error))),
                    ));
                });
            }
            UserAction::Cancel(reference) => {
                let operation = operation(&reference);
                tokio::spawn(async move {
                    let said = match cancel(&client, &reference, operation).await {
                        Ok(()) => format!("{reference}: cancellation requested"),
                        Err(error) => format!("cannot cancel {reference}: {}", errors::cause_text(&error)),
                    };
                    let _ = sender.send(ActionResult::Message(said));
                });
            }
            UserAction::None | UserAction::Quit => {}
        }
    }

    /// Shows results that have arrived; returns whether there were any.
    pub fn results(&self, app: &mut App) -> bool {
        let mut any = false;
        while let Ok(result) = self.receiver.try_recv() {
            any = true;
            match result {
                ActionResult::Log(text) if matches!(app.view, View::Log(_)) => {
                    // The end of a log matters most.
                    app.scroll = usize::MAX;
                    app.view = View::Log(text);
                }
                ActionResult::Log(_) => {}
                ActionResult::Message(text) => app.prompt = Prompt::Say(text),
            }
        }
        any
    }
}

async fn cancel(client: &Client, reference: &Reference, operation: Option<String>) -> anyhow::Result<()> {
    let (kind, name) = match operation {
        Some(operation) => (Kind::Operation, operation),
        None if reference.kind.is_transfer() => (reference.kind, reference.name.clone()),
        None => bail!("it cannot be cancelled: it has no operation of Plimsoll"),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &reference.namespace, &kind.resource());
    let patch = Patch::Merge(json!({ "spec": { "cancel": true } }));
    api.patch(&name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The log that the server stored when the operation ended.
async fn stored_log(client: &Client, reference: &Reference) -> anyhow::Result<Option<String>> {
    let named = |kind| names::Reference { kind, name: reference.name.clone() };
    let namespace = &reference.namespace;
    Ok(match reference.kind {
        Kind::Backup => Some(logs::fetch_all(client, namespace, &named(names::ResourceKind::Backup)).await?),
        Kind::Restore => Some(logs::fetch_all(client, namespace, &named(names::ResourceKind::Restore)).await?),
        Kind::ActionSet => action::kept_log(client, namespace, &named(names::ResourceKind::Action)).await?.text,
        _ => None,
    })
}

/// The last lines of a text.
fn end_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(usize::try_from(MAX_LOG_LINES).unwrap_or(usize::MAX))..].join("\n")
}

/// The end of what was logged: by our server, by the mover's pod, or by Velero's server about it.
async fn log(
    client: &Client,
    reference: &Reference,
    operation: Option<String>,
    server: Option<String>,
) -> anyhow::Result<String> {
    if let Some(operation) = operation {
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &reference.namespace, &Kind::Operation.resource());
        let object = api.get(&operation).await?;
        if let Some(text) = object.data.pointer("/status/log/text").and_then(|text| text.as_str()) {
            return Ok(text.to_owned());
        }
        // An ended operation of Plimsoll keeps its log in the location.
        if let Some(text) = stored_log(client, reference).await? {
            return Ok(end_of(&text));
        }
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &reference.namespace);
    let parameters = LogParams { tail_lines: Some(MAX_LOG_LINES), ..LogParams::default() };
    if reference.kind.is_transfer()
        && let Ok(text) = pods.logs(&reference.name, &parameters).await
    {
        return Ok(text);
    }
    let server = server.context("no pod of the server found")?;
    let text = pods.logs(&server, &parameters).await.with_context(|| format!("cannot read the log of pod {server}"))?;
    let mine: Vec<&str> = text.lines().filter(|line| line.contains(&reference.name)).collect();
    if mine.is_empty() {
        bail!("the last {MAX_LOG_LINES} lines of pod {server} do not mention {}", reference.name);
    }
    Ok(mine.join("\n"))
}
