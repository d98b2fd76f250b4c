//! `plimsoll mover` alone, for the tests of this crate: the product's binary does the same.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let [_, flag, parent, rest @ ..] = arguments.as_slice()
        && flag == "--guard"
    {
        let parent = parent.to_str().and_then(|text| text.parse().ok()).unwrap_or_default();
        let end = rest.iter().position(|word| word == "--").unwrap_or(rest.len());
        let writes: Vec<PathBuf> = rest[..end].iter().skip(1).step_by(2).map(PathBuf::from).collect();
        let error = plimsoll_mover::guard(parent, &writes, rest.get(end + 1..).unwrap_or_default());
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{error}\n").as_bytes());
        return ExitCode::from(127);
    }
    let this = std::env::current_exe().map(Into::into).into_iter().collect();
    let ended_well = plimsoll_mover::run(std::io::stdin(), &mut std::io::stdout(), this);
    if ended_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
