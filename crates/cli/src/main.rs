//! The `plimsoll` binary. Everything that prints is here.

#![allow(
    rustdoc::bare_urls,
    reason = "comments of arguments are their help text, which shows addresses as they are typed"
)]

mod api_retry;
mod api_timeout;
mod args;
mod client_config;
mod commands;
mod connect;
#[cfg(test)]
mod consistency_tests;
mod deletion;
mod describe;
#[cfg(test)]
mod documentation_tests;
mod draw;
mod errors;
mod events;
mod exit;
mod kinds;
mod observation;
mod output;
mod plugin_transfer;
mod progress_display;
mod reference;
mod remote;
mod request_rate;
mod selectors;
mod subjects;
mod transfer;
mod transfer_object;
mod wait;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches;

use crate::args::action::Action;
use crate::args::names::{Reference, ResourceKind};
use crate::args::{Arguments, Backup, BackupLocation, Cancel, Command, Create, Global, Restore, Schedule};
use crate::exit::Outcome;

/// musl's own allocator serialises threads; this one does not (docs/adr/0001).
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let matches = args::help::command().get_matches_from(command_line());
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // One TLS provider for the whole process; a second one would be a panic at the first connection.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let silent = matches!(&arguments.command, Command::Top(options) if options.is_drawn());
    output::init_logging(&arguments.global, silent);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return errors::report(&anyhow::Error::new(error).context("cannot start")),
    };
    let answer = runtime.block_on(dispatch(arguments));
    // Spawned work that still runs belongs to an operation that the next server resumes.
    runtime.shutdown_background();
    match answer {
        Ok(outcome) => outcome.into(),
        Err(error) => errors::report(&error),
    }
}

/// The arguments of this process. A program of the name `kando` is `plimsoll kando`.
fn command_line() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let called = words.first().and_then(|word| Path::new(word).file_name());
    if called.is_some_and(|name| name == "kando") {
        words.splice(0..1, ["plimsoll".into(), "kando".into()]);
    }
    words
}

async fn dispatch(arguments: Arguments) -> anyhow::Result<Outcome> {
    let global = arguments.global;
    match arguments.command {
        Command::Local(options) => Box::pin(commands::local::run(&global, options)).await,
        Command::Server(options) => Box::pin(commands::server::run(&global, options)).await,
        Command::Agent(options) => commands::agent::run(&global, options).await,
        Command::Demo(options) => commands::demo::run(options).await,
        Command::Backup(verb) => Box::pin(backup(&global, verb)).await,
        Command::Restore(verb) => Box::pin(restore(&global, verb)).await,
        Command::Schedule(verb) => Box::pin(schedule(&global, verb)).await,
        Command::BackupLocation(verb) => Box::pin(backup_location(&global, verb)).await,
        Command::Blueprint(verb) => commands::blueprint::run(&global, &verb).await,
        Command::Profile(verb) => Box::pin(commands::profile::run(&global, verb)).await,
        Command::Kando(options) => commands::kando::run(options).await,
        Command::Action(verb) => Box::pin(action(&global, verb)).await,
        Command::Repo(verb) => commands::repo::run(&global, verb).await,
        Command::Volume(verb) => commands::volume::run(&global, verb).await,
        Command::Install(options) => Box::pin(commands::install::run(&global, &options)).await,
        Command::Uninstall(options) => commands::uninstall::run(&global, &options).await,
        Command::SnapshotLocation(verb) => Box::pin(commands::snapshot_location::run(&global, verb)).await,
        Command::Plugin(verb) => Box::pin(commands::plugin::run(&global, verb)).await,
        Command::Create(Create::Backup(options)) => commands::backup::run(&global, options).await,
        Command::Create(Create::Restore(options)) => commands::restore::run(&global, options).await,
        Command::Create(Create::Schedule(options)) => commands::schedule::create(&global, options).await,
        Command::Create(Create::BackupLocation(options)) => commands::location::create(&global, options).await,
        Command::Create(Create::SnapshotLocation(options)) => {
            let verb = args::plugins::SnapshotLocation::Create(options);
            Box::pin(commands::snapshot_location::run(&global, verb)).await
        }
        Command::Get(any) => {
            if let Some(other) = commands::get_other::requested(&any.targets, &any.options)? {
                return Box::pin(commands::get_other::run(&global, other)).await;
            }
            let (targets, options) = any.resolve()?;
            commands::get::run(&global, &targets, &options).await
        }
        Command::Describe(any) => {
            let (targets, options) = any.resolve()?;
            describe::run(&global, &targets, &options).await
        }
        Command::Logs(any) => {
            let (targets, options) = any.resolve()?;
            Box::pin(commands::logs::run(&global, &targets.single("logs")?, &options)).await
        }
        Command::Delete(any) => {
            let (targets, options) = any.resolve()?;
            commands::delete::run(&global, &targets, &options).await
        }
        Command::Client(command) => client_config::run(command),
        Command::Debug(options) => Box::pin(commands::debug::run(&global, &options)).await,
        Command::Cancel(options) => commands::cancel::run(&global, options).await,
        Command::Ui(options) => Box::pin(commands::ui::run(&global, options)).await,
        Command::Why(options) => commands::why::run(&global, options).await,
        Command::Watch(options) => commands::watch::run(&global, options).await,
        Command::Top(options) => commands::top::run(&global, options).await,
        Command::Crds(verb) => commands::crds::run(&global, verb).await,
        Command::Version(options) => commands::version::run(&global, &options).await,
        Command::RestoreWait(options) => commands::restore_wait::run(&options).await,
        Command::Mover(options) => commands::mover::run(&options),
        Command::KandoInstall { directory } => commands::kando_install::run(&directory),
        Command::Completion { shell } => commands::completion::run(shell),
        Command::Reference => reference::run(),
    }
}

async fn backup(global: &Global, verb: Backup) -> anyhow::Result<Outcome> {
    match verb {
        Backup::Create(options) => commands::backup::run(global, options).await,
        Backup::Get(named) => {
            let (targets, options) = named.of(ResourceKind::Backup);
            commands::get::run(global, &targets, &options).await
        }
        Backup::Describe(named) => {
            let (targets, options) = named.of(ResourceKind::Backup);
            describe::run(global, &targets, &options).await
        }
        Backup::Logs(named) => {
            let (targets, options) = named.of(ResourceKind::Backup);
            Box::pin(commands::logs::run(global, &targets.single("logs")?, &options)).await
        }
        Backup::Delete(named) => {
            let (targets, options) = named.of(ResourceKind::Backup);
            commands::delete::run(global, &targets, &options).await
        }
        Backup::Download(named) => {
            let (targets, options) = named.of(ResourceKind::Backup);
            commands::download::run(global, &targets.single("download")?, &options).await
        }
    }
}

async fn restore(global: &Global, verb: Restore) -> anyhow::Result<Outcome> {
    match verb {
        Restore::Create(options) => commands::restore::run(global, options).await,
        Restore::Get(named) => {
            let (targets, options) = named.of(ResourceKind::Restore);
            commands::get::run(global, &targets, &options).await
        }
        Restore::Describe(named) => {
            let (targets, options) = named.of(ResourceKind::Restore);
            describe::run(global, &targets, &options).await
        }
        Restore::Logs(named) => {
            let (targets, options) = named.of(ResourceKind::Restore);
            Box::pin(commands::logs::run(global, &targets.single("logs")?, &options)).await
        }
        Restore::Delete(named) => {
            let (targets, options) = named.of(ResourceKind::Restore);
            commands::delete::run(global, &targets, &options).await
        }
    }
}

async fn action(global: &Global, verb: Action) -> anyhow::Result<Outcome> {
    match verb {
        Action::Create(options) => commands::action::create(global, options).await,
        Action::Get(named) => {
            let (targets, options) = named.of(ResourceKind::Action);
            commands::get::run(global, &targets, &options).await
        }
        Action::Describe(named) => {
            let (targets, options) = named.of(ResourceKind::Action);
            describe::run(global, &targets, &options).await
        }
        Action::Watch(options) => commands::action::watch(global, options).await,
        Action::Cancel(options) => {
            let reference = Reference { kind: ResourceKind::Action, name: options.name };
            commands::cancel::run(global, Cancel { reference, wait: options.wait }).await
        }
        Action::Logs(options) => commands::action::logs(global, options).await,
    }
}

async fn schedule(global: &Global, verb: Schedule) -> anyhow::Result<Outcome> {
    match verb {
        Schedule::Create(options) => commands::schedule::create(global, options).await,
        Schedule::Get(named) => {
            let (targets, options) = named.of(ResourceKind::Schedule);
            commands::get::run(global, &targets, &options).await
        }
        Schedule::Describe(named) => {
            let (targets, options) = named.of(ResourceKind::Schedule);
            describe::run(global, &targets, &options).await
        }
        Schedule::Pause(named) => commands::schedule::pause(global, named.names, named.options, true).await,
        Schedule::Unpause(named) => commands::schedule::pause(global, named.names, named.options, false).await,
        Schedule::Delete(named) => {
            let (targets, options) = named.of(ResourceKind::Schedule);
            commands::delete::run(global, &targets, &options).await
        }
    }
}

async fn backup_location(global: &Global, verb: BackupLocation) -> anyhow::Result<Outcome> {
    match verb {
        BackupLocation::Create(options) => commands::location::create(global, options).await,
        BackupLocation::Get(options) => {
            let default = options.default;
            let (targets, options) = options.named.of(ResourceKind::Location);
            commands::location::get(global, &targets, &options, default).await
        }
        BackupLocation::Describe(named) => {
            let (targets, options) = named.of(ResourceKind::Location);
            describe::run(global, &targets, &options).await
        }
        BackupLocation::Set(options) => commands::location::set(global, options).await,
        BackupLocation::Delete(named) => {
            let (targets, options) = named.of(ResourceKind::Location);
            commands::delete::run(global, &targets, &options).await
        }
    }
}
