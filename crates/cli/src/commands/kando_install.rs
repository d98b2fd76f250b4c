//! `plimsoll kando-install`: what the init container of a blueprint's pod runs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;

use crate::exit::Outcome;

/// Copies this program. A copy, because the two containers share nothing but the directory.
pub fn run(directory: &Path) -> anyhow::Result<Outcome> {
    let target = directory.join("kando");
    let what = || format!("cannot write {}", target.display());
    std::fs::copy("/proc/self/exe", &target).with_context(what)?;
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o755)).with_context(what)?;
    Ok(Outcome::Success)
}
