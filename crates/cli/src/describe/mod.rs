//! `plimsoll describe`: facts, gathered once, as text or as JSON.

mod action;
mod facts;
mod files;
mod filters;
mod item_operations;
mod location;
pub mod page;
mod schedule;
pub mod subject;

use std::time::Duration;

use anyhow::bail;
use kube::Client;
use plimsoll_progress::{Clock, Operation};
use serde_json::Value;

use crate::args::Global;
use crate::args::names::{ResourceKind, Targets};
use crate::args::options::DescribeOptions;
use crate::errors::UsageError;
use crate::exit::Outcome;
use crate::progress_display::ProgressDisplay;
use crate::subjects::{self, Subject};
use crate::{connect, output};

/// How long the server may take to sign the URLs of optional files.
const URL_TIMEOUT: Duration = Duration::from_secs(10);

/// Prints all details of the selected objects.
pub async fn run(global: &Global, targets: &Targets, options: &DescribeOptions) -> anyhow::Result<Outcome> {
    if targets.kind == ResourceKind::Operation {
        bail!(UsageError("describe the backup or restore instead; it includes the operation".into()));
    }
    let client = connect::client(global).await?;
    let mut chosen = subjects::list(&client, &global.namespace, targets, options.selector.as_deref()).await?;
    if targets.names.is_empty() {
        // A list comes without the operations.
        for subject in &mut chosen {
            *subject = subjects::read(&client, &global.namespace, &subject.reference()).await?;
        }
    }
    if chosen.is_empty() {
        output::line(format!("no {}s found", targets.kind.word()));
    }
    let mut described = Vec::new();
    for subject in &chosen {
        described.push(Box::pin(describe(&client, &global.namespace, subject, options)).await?);
    }
    match (options.output, described.as_slice()) {
        (Some(format), [(facts, _)]) => output::object(facts, format)?,
        (Some(format), all) => output::object(&all.iter().map(|(facts, _)| facts).collect::<Vec<_>>(), format)?,
        (None, all) => print(all),
    }
    Ok(Outcome::Success)
}

fn print(all: &[(Value, Vec<String>)]) {
    for (index, (_, lines)) in all.iter().enumerate() {
        if index > 0 {
            output::line("\n");
        }
        lines.iter().for_each(output::line);
    }
}

/// One of them, as facts and as text.
async fn describe(
    client: &Client,
    namespace: &str,
    subject: &Subject,
    options: &DescribeOptions,
) -> anyhow::Result<(Value, Vec<String>)> {
    match subject.kind {
        ResourceKind::Schedule => {
            let backups = schedule::backups(client, namespace, subject.name()).await?;
            Ok((schedule::facts(subject, &backups), schedule::text(subject, &backups)))
        }
        ResourceKind::Action => Ok((action::facts(subject), action::text(subject))),
        ResourceKind::Location => {
            let backups = location::backups(client, namespace, subject.name()).await?;
            Ok((location::facts(subject, backups), location::text(subject, backups)))
        }
        _ => {
            let operation = Operation::new(format!("describe {}", subject.reference()), Clock::system());
            let gather = Box::pin(files::gather(client, namespace, subject, options, operation.root()));
            let files = ProgressDisplay::on_terminal_only().show_while(&operation, gather).await;
            let facts = facts::facts(subject, files);
            Ok((serde_json::to_value(&facts)?, subject::text(&facts, options.details)))
        }
    }
}
