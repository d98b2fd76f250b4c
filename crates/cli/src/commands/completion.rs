//! `plimsoll completion`.

use clap::CommandFactory;

use crate::args::Arguments;
use crate::exit::Outcome;

/// Prints the completions of a shell.
#[expect(clippy::unnecessary_wraps, reason = "all commands have one shape")]
pub fn run(shell: clap_complete::Shell) -> anyhow::Result<Outcome> {
    clap_complete::generate(shell, &mut Arguments::command(), "plimsoll", &mut std::io::stdout());
    Ok(Outcome::Success)
}
