//! `plimsoll describe`: facts, gathered once, as text or as JSON.

mod action;
mod facts;
mod files;
mod filters;
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
use crate::args::names::{Kind, Targets};
use crate::args::options::DescribeOptions;
use crate::errors::UsageError;
use crate::exit::Outcome;
use crate::picture::Picture;
use crate::subjects::{self, Seen};
use crate::{connect, output};

/// How long the server has to make links to files that a description would be better with.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tells everything about what was chosen.
pub async fn run(global: &Global, targets: &Targets, options: &DescribeOptions) -> anyhow::Result<Outcome> {
    if targets.kind == Kind::Operation {
        bail!(UsageError("describe the backup or restore instead; it includes the operation".into()));
    }
    let client = connect::client(global).await?;
    let mut chosen = subjects::list(&client, &global.namespace, targets, options.selector.as_deref()).await?;
    if targets.names.is_empty() {
        // A list comes without the operations.
        for seen in &mut chosen {
            *seen = subjects::read(&client, &global.namespace, &seen.reference()).await?;
        }
    }
    if chosen.is_empty() {
        output::line(format!("no {}s found", targets.kind.word()));
    }
    let mut described = Vec::new();
    for seen in &chosen {
        described.push(Box::pin(describe(&client, &global.namespace, seen, options)).await?);
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
    seen: &Seen,
    options: &DescribeOptions,
) -> anyhow::Result<(Value, Vec<String>)> {
    match seen.kind {
        Kind::Schedule => {
            let backups = schedule::backups(client, namespace, seen.name()).await?;
            Ok((schedule::facts(seen, &backups), schedule::text(seen, &backups)))
        }
        Kind::Action => Ok((action::facts(seen), action::text(seen))),
        Kind::Location => {
            let backups = location::backups(client, namespace, seen.name()).await?;
            Ok((location::facts(seen, backups), location::text(seen, backups)))
        }
        _ => {
            let operation = Operation::new(format!("reading about {}", seen.reference()), Clock::system());
            let gather = Box::pin(files::gather(client, namespace, seen, options, operation.root()));
            let files = Picture::on_terminal_only().of(&operation, gather).await;
            let facts = facts::facts(seen, files);
            Ok((serde_json::to_value(&facts)?, subject::text(&facts, options.details)))
        }
    }
}
