//! `plimsoll mover`: one transfer in a process of its own. The server and the agent start it; people need not.

use crate::args::agent::Mover;
use crate::exit::Outcome;

/// Carries out the job on standard input, or becomes the program that a mover asked for.
pub fn run(options: &Mover) -> anyhow::Result<Outcome> {
    if let Some(parent) = options.guard {
        // Comes back only if the program could not be started.
        return Err(plimsoll_mover::guard(parent, &options.writes, &options.command).into());
    }
    let this = vec![std::env::current_exe()?.into(), "mover".into()];
    let ended_well = plimsoll_mover::run(std::io::stdin(), &mut std::io::stdout(), this);
    Ok(if ended_well { Outcome::Success } else { Outcome::Failed })
}
