//! The `plimsoll` binary. Everything that prints is here.

mod args;
mod commands;
mod connect;
mod draw;
mod exit;
mod output;
mod subjects;
mod wait;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command};
use crate::exit::Outcome;

/// musl's own allocator serialises threads; this one does not (docs/adr/0001).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // One TLS provider for the whole process; a second one would be a panic at the first connection.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    output::log_to_stderr(&arguments.global);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&anyhow::Error::new(error).context("cannot start")),
    };
    let answer = runtime.block_on(dispatch(arguments));
    // Spawned work that is still going on belongs to an operation that the next server takes up again.
    runtime.shutdown_background();
    match answer {
        Ok(outcome) => outcome.into(),
        Err(error) => exit::report(&error),
    }
}

async fn dispatch(arguments: Arguments) -> anyhow::Result<Outcome> {
    let global = arguments.global;
    match arguments.command {
        Command::Local(options) => commands::local::run(&global, options).await,
        Command::Server(options) => commands::server::run(&global, options).await,
        Command::Demo(options) => commands::demo::run(options).await,
        Command::Backup(verb) => commands::backup::run(&global, verb).await,
        Command::Restore(verb) => commands::restore::run(&global, verb).await,
        Command::Get(options) => commands::get::run(&global, options).await,
        Command::Describe(options) => commands::describe::run(&global, options).await,
        Command::Cancel(options) => commands::cancel::run(&global, options).await,
        Command::Crds(verb) => commands::crds::run(&global, verb).await,
        Command::Completion { shell } => commands::completion::run(shell),
    }
}
