//! `plimsoll completion`.

use crate::args::help;
use crate::exit::Outcome;

/// Prints the completions of a shell.
#[expect(clippy::unnecessary_wraps, reason = "all commands have one shape")]
pub fn run(shell: clap_complete::Shell) -> anyhow::Result<Outcome> {
    clap_complete::generate(shell, &mut help::command(), "plimsoll", &mut std::io::stdout());
    Ok(Outcome::Success)
}
