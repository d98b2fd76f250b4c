//! `plimsoll kando`, or this program under the name `kando`: what the shell lines of blueprints call in their pods.
//!
//! Standard output is for data and outputs alone; progress goes to standard error.

use std::io::{IsTerminal, Write as _};
use std::path::Path;

use anyhow::{Context, bail};
use plimsoll_blueprint::kando::protocol::{Output, progress_line};
use plimsoll_blueprint::kando::{DEFAULT_OUTPUT, Kando as Commands, KandoError, KopiaKando, SnapshotInfo};
use plimsoll_blueprint::kopia_server::KopiaServer;
use plimsoll_blueprint::profile::ResolvedProfile;
use plimsoll_progress::Frame;
use tokio::io::{AsyncRead, AsyncWrite};

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
    let path = options.path.as_deref().ok_or_else(|| UsageError("--path is missing".into()))?;
    let profile = profile(&options)?;
    if let Some(server) = profile.kopia_server() {
        return move_with_kopia(server, &options.verb, path).await;
    }
    reject_kopia_snapshot(&options.verb)?;
    let kando = Commands::open(&profile)?;
    match &options.verb {
        LocationVerb::Push { source, .. } => {
            let (source, size) = open_source(source).await?;
            kando.push(path, source, size, report).await?
        }
        LocationVerb::Pull { target, .. } => kando.pull(path, open_target(target).await?, report).await?,
        LocationVerb::Delete { .. } => kando.delete(path, report).await?,
    };
    Ok(())
}

async fn move_with_kopia(server: &KopiaServer, verb: &LocationVerb, path: &str) -> anyhow::Result<()> {
    let snapshot = |text: &Option<String>| SnapshotInfo::parse(text.as_deref().unwrap_or_default());
    match verb {
        LocationVerb::Push { source, output_name } => {
            let (source, size) = open_source(source).await?;
            let saved = KopiaKando::connect(server).await?.push(path, source, size, report).await?;
            output::line(saved.to_output(output_name.as_deref().unwrap_or(DEFAULT_OUTPUT))?.to_line());
        }
        LocationVerb::Pull { target, kopia_snapshot } => {
            let snapshot = snapshot(kopia_snapshot)?;
            let kando = KopiaKando::connect(server).await?;
            kando.pull(path, &snapshot, open_target(target).await?, report).await?;
        }
        LocationVerb::Delete { kopia_snapshot } => {
            let snapshot = snapshot(kopia_snapshot)?;
            KopiaKando::connect(server).await?.delete(path, &snapshot, report).await?;
        }
    }
    Ok(())
}

/// Kanister has it for profiles of a Kopia server only. With other profiles it ignores `--output-name`.
fn reject_kopia_snapshot(verb: &LocationVerb) -> anyhow::Result<()> {
    match verb {
        LocationVerb::Pull { kopia_snapshot: Some(_), .. } | LocationVerb::Delete { kopia_snapshot: Some(_) } => {
            Err(unsupported("--kopia-snapshot with a profile that is not of a Kopia server"))
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

/// A file or standard input, and its size if known.
async fn open_source(source: &str) -> anyhow::Result<(Box<dyn AsyncRead + Unpin>, Option<u64>)> {
    if source == "-" {
        if std::io::stdin().is_terminal() {
            bail!("standard input is a terminal; pipe the data into it");
        }
        return Ok((Box::new(tokio::io::stdin()), None));
    }
    let file = tokio::fs::File::open(source).await.with_context(|| format!("cannot open {source}"))?;
    let metadata = file.metadata().await.with_context(|| format!("cannot look at {source}"))?;
    Ok((Box::new(file), metadata.is_file().then_some(metadata.len())))
}

/// A file or standard output.
async fn open_target(target: &str) -> anyhow::Result<Box<dyn AsyncWrite + Unpin>> {
    if target == "-" {
        return Ok(Box::new(tokio::io::stdout()));
    }
    let file = tokio::fs::File::create(Path::new(target)).await.with_context(|| format!("cannot write {target}"))?;
    Ok(Box::new(file))
}

/// One write for each line: several processes of a pod share its standard error. A closed standard error is not an error.
fn report(frame: &Frame) {
    let line = format!("{}\n", progress_line(frame));
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
