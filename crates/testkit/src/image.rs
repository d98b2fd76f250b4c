//! Container images without a registry: a tar of a folder in the form that `docker save` gives it, loaded into containerd.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::cache;

/// The image of pod sandboxes.
pub const PAUSE: &str = "plimsoll.test/pause:1";
/// A shell and the usual commands, statically linked.
pub const BUSYBOX: &str = "plimsoll.test/busybox:1";

/// An image to build: busybox and additional files.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    files: Vec<(PathBuf, String)>,
    entrypoint: Vec<String>,
}

impl Image {
    /// Busybox alone, with every command it knows in `/bin`.
    pub fn busybox(name: impl Into<String>) -> Self {
        Self { name: name.into(), files: Vec::new(), entrypoint: Vec::new() }
    }

    /// Its name. The tag must not be `latest`, or the kubelet would try to pull it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a file.
    #[must_use]
    pub fn with_file(mut self, source: impl Into<PathBuf>, path: impl Into<String>) -> Self {
        self.files.push((source.into(), path.into()));
        self
    }

    /// Adds a program with the shared libraries it needs, so that a debug build runs too.
    pub fn with_program(mut self, source: impl Into<PathBuf>, path: impl Into<String>) -> Result<Self> {
        let source = source.into();
        for library in shared_libraries(&source)? {
            let path = library.display().to_string();
            self.files.push((library, path));
        }
        self.files.push((source, path.into()));
        Ok(self)
    }

    /// The entrypoint of its containers.
    #[must_use]
    pub fn with_entrypoint<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// Writes the image to a file that containerd can import.
    pub fn write(&self, path: &Path) -> Result<()> {
        let layer = self.layer()?;
        let config = serde_json::to_vec(&json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }, "os": "linux",
            "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Entrypoint": self.entrypoint},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", hex::encode(Sha256::digest(&layer)))]},
        }))?;
        let manifest = json!([{"Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"]}]);
        let mut archive = tar::Builder::new(fs::File::create(path)?);
        append(&mut archive, "config.json", 0o644, &config)?;
        append(&mut archive, "layer.tar", 0o644, &layer)?;
        append(&mut archive, "manifest.json", 0o644, &serde_json::to_vec(&manifest)?)?;
        Ok(archive.into_inner()?.flush()?)
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let busybox = cache::system_program("busybox")?;
        let mut layer = tar::Builder::new(Vec::new());
        append(&mut layer, "bin/busybox", 0o755, &fs::read(&busybox)?)?;
        for applet in applets(&busybox)? {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            layer.append_link(&mut header, format!("bin/{applet}"), "busybox")?;
        }
        for (source, path) in &self.files {
            let content = fs::read(source).with_context(|| format!("failed to read {}", source.display()))?;
            append(&mut layer, path.trim_start_matches('/'), 0o755, &content)?;
        }
        append_folder(&mut layer, "tmp/", 0o1777)?;
        Ok(layer.into_inner()?)
    }
}

/// The image in which scripts run: ours, or on an external cluster that of `PLIMSOLL_TEST_IMAGE`.
pub fn shell() -> String {
    std::env::var("PLIMSOLL_TEST_IMAGE").unwrap_or_else(|_| BUSYBOX.into())
}

/// Ours are in no registry; others may have to be pulled.
pub(crate) fn pull_policy(image: &str) -> &'static str {
    if image.starts_with("plimsoll.test/") { "Never" } else { "IfNotPresent" }
}

/// The two images that every cluster has.
pub(crate) fn built_in() -> [Image; 2] {
    [Image::busybox(PAUSE).with_entrypoint(["/bin/sleep", "2147483647"]), Image::busybox(BUSYBOX)]
}

fn append<W: Write>(archive: &mut tar::Builder<W>, path: &str, mode: u32, content: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(mode);
    Ok(archive.append_data(&mut header, path, content)?)
}

fn append_folder<W: Write>(archive: &mut tar::Builder<W>, path: &str, mode: u32) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_size(0);
    header.set_mode(mode);
    Ok(archive.append_data(&mut header, path, std::io::empty())?)
}

fn applets(busybox: &Path) -> Result<Vec<String>> {
    let output = Command::new(busybox).arg("--list").output()?;
    let applets = String::from_utf8(output.stdout)?;
    Ok(applets.lines().filter(|name| *name != "busybox").map(String::from).collect())
}

/// The absolute paths in the output of `ldd`; a static program has none.
fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("failed to run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_names_its_layer_by_the_digest_of_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.tar");
        let marker = folder.path().join("marker");
        fs::write(&marker, "hello").unwrap();
        crate::require!(cache::system_program("busybox"));
        Image::busybox("plimsoll.test/x:1").with_file(&marker, "/etc/marker").write(&path).unwrap();
        let mut archive = tar::Archive::new(fs::File::open(&path).unwrap());
        let mut entries = std::collections::BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
            entries.insert(entry.path().unwrap().display().to_string(), content);
        }
        let config: serde_json::Value = serde_json::from_slice(&entries["config.json"]).unwrap();
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&entries["layer.tar"])));
        assert_eq!(config["rootfs"]["diff_ids"][0], digest);
    }
}
