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
    copy_kopia(directory);
    Ok(Outcome::Success)
}

/// Copies kopia for images that have none: `kando` runs it with profiles of a Kopia server. Our image need not have it.
fn copy_kopia(directory: &Path) {
    let target = directory.join("kopia");
    if std::fs::copy("/usr/bin/kopia", &target).is_ok() {
        let _ = std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o755));
    }
}
