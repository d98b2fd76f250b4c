//! The cache directory, outside the clone, with the installed programs and the state between two runs.

use std::env;
use std::path::{Path, PathBuf};

use crate::skip::Unavailable;

/// The cache directory, the same as `hack/install` uses.
pub fn directory() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    env::var_os("PLIMSOLL_CACHE").map_or_else(|| home().join(".cache/plimsoll"), PathBuf::from)
}

/// The path of a program that `hack/install` built.
pub fn program(name: &str) -> Result<PathBuf, Unavailable> {
    let path = directory().join("bin").join(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(Unavailable::new(name, format!("not installed; run `hack/install {name}`")))
}

/// The path of a program that comes with the system, or with a Debian package that `hack/install` installs.
pub fn system_program(name: &str) -> Result<PathBuf, Unavailable> {
    let search = env::var("PATH").unwrap_or_default();
    search
        .split(':')
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"])
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| Unavailable::new(name, "it is not in PATH: run `hack/install all`"))
}
