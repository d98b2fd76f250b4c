//! `plimsoll kando`, or this program under the name `kando`: what the shell lines of blueprints call in their pods.
//!
//! Standard output is for data and outputs alone; progress goes to standard error.

use std::io::{IsTerminal, Write as _};
use std::path::Path;

use anyhow::{Context, bail};
use plimsoll_blueprint::kando::protocol::{Output, progress_line};
use plimsoll_blueprint::kando::{Kando as Commands, KandoError, TransferSummary};
use plimsoll_blueprint::profile::ResolvedProfile;
use plimsoll_progress::Frame;

use crate::args::blueprint::{Kando, KandoCommand, KandoLocation, LocationVerb};
use crate::errors::UsageError;
use crate::exit::Outcome;
use crate::output;

/// Carries out one command.
pub async fn run(options: Kando) -> anyhow::Result<Outcome> {
    match options.command {
        KandoCommand::Location(location) => move_data(location).await?,
        KandoCommand::Output { key, value } => output::line(Output::new(&key, &value)?.to_line()),
        KandoCommand::Chronicle(_) => return Err(unsupported("kando chronicle")),
        KandoCommand::Stream(_) => return Err(unsupported("kando stream")),
        KandoCommand::Process(_) => return Err(unsupported("kando process")),
    }
    Ok(Outcome::Success)
}

fn unsupported(what: &str) -> anyhow::Error {
    KandoError::Unsupported { what: what.to_owned() }.into()
}

async fn move_data(options: KandoLocation) -> anyhow::Result<()> {
    reject_kopia_options(&options.verb)?;
    let path = options.path.as_deref().ok_or_else(|| UsageError("--path is missing".into()))?;
    let kando = Commands::open(&profile(&options)?)?;
    match &options.verb {
        LocationVerb::Push { source, .. } => push(&kando, path, source).await?,
        LocationVerb::Pull { target, .. } => pull(&kando, path, target).await?,
        LocationVerb::Delete { .. } => kando.delete(path, report).await?,
    };
    Ok(())
}

/// Kanister has it for profiles of a kopia server only. With other profiles it ignores `--output-name`.
fn reject_kopia_options(verb: &LocationVerb) -> anyhow::Result<()> {
    match verb {
        LocationVerb::Pull { kopia_snapshot: Some(_), .. } | LocationVerb::Delete { kopia_snapshot: Some(_) } => {
            Err(unsupported("--kopia-snapshot"))
        }
        _ => Ok(()),
    }
}

fn profile(options: &KandoLocation) -> anyhow::Result<ResolvedProfile> {
    let text = match (&options.profile, &options.profile_path) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?
        }
        (None, None) => return Err(UsageError("--profile is missing".into()).into()),
    };
    Ok(ResolvedProfile::from_json(&text)?)
}

async fn push(kando: &Commands, path: &str, source: &str) -> anyhow::Result<TransferSummary> {
    if source == "-" {
        if std::io::stdin().is_terminal() {
            bail!("standard input is a terminal; pipe the data into it");
        }
        return Ok(kando.push(path, tokio::io::stdin(), None, report).await?);
    }
    let file = tokio::fs::File::open(source).await.with_context(|| format!("cannot open {source}"))?;
    let metadata = file.metadata().await.with_context(|| format!("cannot look at {source}"))?;
    let size = metadata.is_file().then_some(metadata.len());
    Ok(kando.push(path, file, size, report).await?)
}

async fn pull(kando: &Commands, path: &str, target: &str) -> anyhow::Result<TransferSummary> {
    if target == "-" {
        return Ok(kando.pull(path, tokio::io::stdout(), report).await?);
    }
    let file = tokio::fs::File::create(Path::new(target)).await.with_context(|| format!("cannot write {target}"))?;
    Ok(kando.pull(path, file, report).await?)
}

/// One write for each line: several processes of a pod share its standard error. A closed standard error is not an error.
fn report(frame: &Frame) {
    let line = format!("{}\n", progress_line(frame));
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
