//! Plimsoll installed as users install it: in pods, with the RBAC of the installer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};

use super::velero::credentials;
use crate::cache;
use crate::cluster::Cluster;
use crate::image::Image;
use crate::namespace::Namespace;

/// The image that [`PlimsollInPods::install`] loads.
pub const IMAGE: &str = "plimsoll.test/plimsoll:1";

/// The CA certificates of the system, as in base images for static programs.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Plimsoll in its own namespace, with one backup location. Uninstalled when it is dropped.
#[derive(Debug)]
pub struct PlimsollInPods {
    program: PathBuf,
    namespace: Namespace,
    kubeconfig: PathBuf,
}

impl PlimsollInPods {
    /// Builds an image with `program`, and with kopia and restic if installed, installs it with a bucket and further
    /// `arguments`, and waits until it is ready. Pods must reach `endpoint`.
    pub async fn install(
        cluster: &Cluster,
        program: &Path,
        endpoint: &str,
        bucket: &str,
        arguments: &[&str],
    ) -> Result<Self> {
        let keys = tempfile::NamedTempFile::new()?;
        std::fs::write(keys.path(), credentials())?;
        let config = format!("region=us-east-1,s3ForcePathStyle=true,s3Url={endpoint}");
        let keys = keys.path().display().to_string();
        let location = ["--provider", "aws", "--bucket", bucket, "--secret-file", &keys];
        let location = [&location[..], &["--backup-location-config", &config]].concat();
        Self::install_at(cluster, program, &location, arguments).await
    }

    /// The same, with a new directory of the node as location.
    pub async fn install_in_directory(
        cluster: &Cluster,
        program: &Path,
        directory: &Path,
        arguments: &[&str],
    ) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let volume = format!("hostPath:{}", directory.display());
        let location = ["--provider", "directory", "--bucket", "/backups", "--location-volume", &volume];
        Self::install_at(cluster, program, &location, arguments).await
    }

    async fn install_at(cluster: &Cluster, program: &Path, location: &[&str], arguments: &[&str]) -> Result<Self> {
        load_image(cluster, program)?;
        let namespace = cluster.namespace("plimsoll").await?;
        let (program, kubeconfig) = (program.to_owned(), cluster.kubeconfig().to_owned());
        let this = Self { program, namespace, kubeconfig };
        let mut all = vec!["install", "--image", IMAGE, "--image-pull-policy", "Never"];
        all.extend(["--server-cpu-request", "0", "--server-mem-request", "0", "--wait", "--timeout", "3m"]);
        all.extend(location);
        all.extend(arguments);
        if let Err(error) = this.cli(all) {
            bail!("{error:#}\n{}", this.logs());
        }
        Ok(this)
    }

    /// The namespace in which its objects are.
    pub fn namespace(&self) -> &str {
        self.namespace.name()
    }

    /// Runs the command line tool; an error contains its output.
    pub fn cli<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", self.namespace()]);
        let output = command.env_remove("KUBECONFIG").stdin(std::process::Stdio::null()).output()?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        if output.status.success() { Ok(text) } else { bail!("plimsoll ended with {}: {text}", output.status) }
    }

    /// Logs, states and events of its pods, for failed tests.
    pub fn logs(&self) -> String {
        let kubectl = |arguments: &[&str]| {
            let program = cache::program("kubectl").map_err(|error| error.to_string());
            let output = program.and_then(|program| {
                let mut command = Command::new(program);
                command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", self.namespace()]);
                command.args(arguments).output().map_err(|error| error.to_string())
            });
            output.map_or_else(|error| error, |output| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let selector = "app.kubernetes.io/part-of=plimsoll";
        let logs = kubectl(&["logs", "--selector", selector, "--prefix", "--tail=200", "--all-containers"]);
        let pods = kubectl(&["get", "pods", "--output=wide"]);
        let events = kubectl(&["get", "events", "--sort-by=.lastTimestamp"]);
        format!("{pods}\n{events}\n{logs}")
    }
}

impl Drop for PlimsollInPods {
    /// Removes the objects outside of the namespace.
    fn drop(&mut self) {
        let _ = self.cli(["uninstall", "--confirm"]);
    }
}

/// Loads [`IMAGE`] once for each build of the program: it is large.
pub fn load_image(cluster: &Cluster, program: &Path) -> Result<()> {
    static LOADED: Mutex<Vec<(PathBuf, PathBuf, SystemTime)>> = Mutex::new(Vec::new());
    let machine = cluster.machine()?;
    let this = (machine.directory(), program.to_owned(), program.metadata()?.modified()?);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if !loaded.contains(&this) {
        machine.load_image(&image(program)?)?;
        loaded.push(this);
    }
    Ok(())
}

fn image(program: &Path) -> Result<Image> {
    let mut image = Image::busybox(IMAGE)
        .with_program(program, "/plimsoll")
        .with_context(|| format!("failed to make an image of {}", program.display()))?;
    // Clients of object storage do not start without CA certificates.
    if Path::new(CERTIFICATES).exists() {
        image = image.with_file(CERTIFICATES, CERTIFICATES);
    }
    for name in ["kopia", "restic"] {
        if let Ok(found) = cache::program(name) {
            image = image.with_program(found, format!("/usr/bin/{name}"))?;
        }
    }
    Ok(image)
}
